/* sys/statvfs.h - named by recorder/journal/sys.h; nothing here looks into it. */
struct statvfs;
