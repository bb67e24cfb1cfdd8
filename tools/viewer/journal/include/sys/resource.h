/* sys/resource.h - named by recorder/journal/sys.h; nothing here looks into it. */
struct rlimit;
