/*
 * terminal.c - a terminal in raw mode: see top.h.
 *
 * The handlers call only async-signal-safe functions: write, tcsetattr, sigaction, raise.
 */
#define _GNU_SOURCE
#include "tools/top/top.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* ENTER: the second screen, without cursor, long lines cut and not folded. LEAVE undoes this. */
#define ENTER "\033[?1049h\033[?25l\033[?7l\033[H\033[2J"
#define LEAVE "\033[?7h\033[?25h\033[?1049l"

static const int deadly[] = { SIGHUP, SIGINT,  SIGQUIT, SIGTERM, SIGPIPE, SIGSEGV,
			      SIGBUS, SIGABRT, SIGFPE,	SIGILL,	 SIGALRM, SIGXCPU };
static struct termios before, ours;
static volatile sig_atomic_t taken, resized;

static void put(const char *text)
{
	for (size_t length = strlen(text); length;) {
		ssize_t n = write(STDOUT_FILENO, text, length);

		if (n <= 0 && errno != EINTR)
			return;
		if (n > 0) {
			text += n;
			length -= (size_t)n;
		}
	}
}

static void enter(void)
{
	tcsetattr(STDIN_FILENO, TCSADRAIN, &ours);
	put(ENTER);
	taken = 1;
}

void gm_terminal_restore(void)
{
	if (!taken)
		return;
	taken = 0;
	put(LEAVE);
	tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
}

static void on_death(int number)
{
	gm_terminal_restore();
	signal(number, SIG_DFL);
	raise(number);			/* the signal is blocked until we return, and then takes effect */
}

static void handle(int number, void (*handler)(int))
{
	struct sigaction action = { .sa_handler = handler };

	sigaction(number, &action, NULL);
}

/* Stop as without a handler, and take the terminal again when the program goes on. In an orphaned process group the
 * kernel stops nothing, and the program goes on at once. */
static void on_stop(int number)
{
	int error = errno;
	sigset_t one;

	gm_terminal_restore();
	signal(number, SIG_DFL);
	sigemptyset(&one);
	sigaddset(&one, number);
	raise(number);
	sigprocmask(SIG_UNBLOCK, &one, NULL);	/* the program stops here */
	handle(number, on_stop);
	enter();
	resized = 1;
	errno = error;
}

static void on_continue(int number)
{
	int error = errno;

	(void)number;
	enter();
	resized = 1;
	errno = error;
}

static void on_size(int number)
{
	(void)number;
	resized = 1;
}

int gm_terminal_take(void)
{
	if (tcgetattr(STDIN_FILENO, &before))
		return -errno;
	ours = before;
	ours.c_lflag &= (tcflag_t)~(ICANON | ECHO);
	ours.c_cc[VMIN] = 0;
	ours.c_cc[VTIME] = 0;
	for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++)
		handle(deadly[i], on_death);
	handle(SIGTSTP, on_stop);
	handle(SIGCONT, on_continue);
	handle(SIGWINCH, on_size);
	enter();
	return 0;
}

void gm_terminal_size(int *ret_rows, int *ret_columns)
{
	struct winsize size = { 0 };

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_row || !size.ws_col)
		size = (struct winsize){ .ws_row = 24, .ws_col = 80 };
	*ret_rows = size.ws_row;
	*ret_columns = size.ws_col;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static const char *name_of(const char *bytes, size_t length)
{
	static const struct { const char *bytes, *name;
	} names[] = {
		{ "\033[A", "up" },   { "\033OA", "up" },      { "\033[B", "down" },
		{ "\033OB", "down" }, { "\033[5~", "pageup" }, { "\033[6~", "pagedown" },
		{ "\033[H", "home" }, { "\033OH", "home" },    { "\033[1~", "home" },
		{ "\033[F", "end" },  { "\033OF", "end" },     { "\033[4~", "end" },
		{ "\033", "escape" }, { "\r", "enter" },       { "\n", "enter" },
		{ "\t", "tab" },      { "\177", "backspace" }, { "\b", "backspace" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i].bytes) == length && !memcmp(bytes, names[i].bytes, length))
			return names[i].name;
	return NULL;
}

/* Return how many of @bytes belong to the first key, which is an escape sequence or a single byte. */
static size_t key_length(const char *bytes, size_t length)
{
	size_t at = 2;

	if (bytes[0] != '\033' || length < 3 || (bytes[1] != '[' && bytes[1] != 'O'))
		return 1;
	while (at < length && (unsigned char)bytes[at] < 0x40)
		at++;
	return at < length ? at + 1 : length;
}

const char *gm_terminal_key(double seconds)
{
	static char pending[64], key[16];
	static size_t count;
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	struct timespec wait = { (time_t)seconds,
				 (long)((seconds - (double)(time_t)seconds) * 1e9) };
	const char *name;
	size_t length;
	ssize_t n;

	if (!count) {
		if (resized || (ppoll(&in, 1, &wait, NULL) < 0 && resized)) {
			resized = 0;
			return "resize";
		}
		if (!in.revents)
			return NULL;
		n = read(STDIN_FILENO, pending, sizeof(pending));
		if (n < 0)
			return errno == EINTR || errno == EAGAIN ? NULL : "end of input";
		if (!n)
			return "end of input";
		count = (size_t)n;
	}
	length = key_length(pending, count);
	name = name_of(pending, length);
	length = length < sizeof(key) ? length : sizeof(key) - 1;
	memcpy(key, pending, length);
	key[length] = '\0';
	memmove(pending, pending + length, count -= length);
	return name ? name : key;
}
