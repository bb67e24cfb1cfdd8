/*
 * python_code.h - the table of Python frames that have ids. Internal to recorder/python*.c.
 */
#ifndef GM_RECORDER_PYTHON_CODE_H
#define GM_RECORDER_PYTHON_CODE_H

/* In a forked or cloned child: the ids were the parent's journal's. */
void gm_python_forget_frames(void);

#endif
