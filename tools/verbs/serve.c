/*
 * serve.c - gpumem serve --prometheus ADDRESS:PORT: the metrics of every living process that we may read, for
 * Prometheus to scrape.
 *
 * libmicrohttpd speaks HTTP. It is opened at run time, because no other verb needs it. Its one thread makes the pages;
 * the main thread waits for a signal. Each scrape looks at the processes anew, and nothing is kept between scrapes.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/read/attach.h"
#include "tools/read/input.h"
#include "tools/read/load.h"
#include "tools/show/show.h"
#include "tools/verbs/arguments.h"
#include "tools/write/convert.h"

#if __has_include(<microhttpd.h>)
#include <microhttpd.h>

#define GM_HTTP_FUNCTIONS(X) \
	X(MHD_start_daemon) X(MHD_stop_daemon) X(MHD_create_response_from_buffer) X(MHD_add_response_header) \
	X(MHD_queue_response) X(MHD_destroy_response) X(MHD_lookup_connection_value) X(MHD_get_connection_info)

static struct {
#define GM_HTTP_FIELD(name) __typeof__(&name) name;
	GM_HTTP_FUNCTIONS(GM_HTTP_FIELD)
#undef GM_HTTP_FIELD
} http;

/* Open libmicrohttpd. Returns why that failed; NULL: it is open. */
static const char *find_http(void)
{
	void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return "libmicrohttpd.so.12 is not installed (Debian: libmicrohttpd12)";
#define FIND(name) \
	*(void **)&http.name = dlsym(library, #name); \
	if (!http.name) \
		return "libmicrohttpd.so.12 has no " #name;
	GM_HTTP_FUNCTIONS(FIND)
#undef FIND
	return NULL;
}

/* ---- the page ---------------------------------------------------------------------------------- */

#define PAGE_STEP (INT64_C(16) << 20)	/* memory for the lines of a process, beside its snapshot */

struct page { struct gm_prometheus *lines; size_t unread; };

/* Add a process to the page. Leave out a process that ends before it is read, and count one that cannot be read, for
 * example because it needs too much memory: it must not hide the others. */
static void add_process(void *arg, int64_t pid, const struct gm_attached *attached)
{
	struct page *page = arg;
	struct gm_loaded loaded;
	struct gm_labels labels;
	int r = gm_load_process(pid, attached, GM_LOAD_TABLES, &loaded);

	if (!r) {
		gm_limit_input(0, PAGE_STEP);
		gm_labels_of((pid_t)pid, &labels);
		r = gm_prometheus_add(page->lines, loaded.snapshot.root, &labels, pid);
		gm_load_free(&loaded);
		gm_limit_input(0, -PAGE_STEP);
	}
	page->unread += r && !gm_attach_ended(attached);
	gm_limit_forget();
}

/* Return the whole page; the caller frees it. NULL: out of memory. */
static char *make_page(bool is_openmetrics, size_t *ret_bytes)
{
	struct page page = { gm_prometheus_open(is_openmetrics), 0 };
	char *text = NULL;
	FILE *out = NULL;
	int r = -ENOMEM;

	if (page.lines) {
		page.unread += gm_discover(add_process, &page);
		out = open_memstream(&text, ret_bytes);
	}
	if (out)
		r = gm_prometheus_write(page.lines, out, page.unread);
	if (out && fclose(out))
		r = -ENOMEM;
	gm_prometheus_free(page.lines);
	if (!r)
		return text;
	free(text);
	return NULL;
}

/* ---- connections ------------------------------------------------------------------------------- */

/*
 * A client that connects and sends nothing, or one byte now and then, must not keep others out. So if there are
 * CONNECTIONS_KEPT connections and another one comes, the oldest is shut down, which libmicrohttpd takes for the
 * client's end. An answer takes a moment, so the connection of a well-behaved client is never the oldest for long.
 */
#define CONNECTIONS_KEPT 32u
#define CONNECTIONS_MOST 64u		/* with those that are shut down and not closed yet */

static struct { int fds[CONNECTIONS_MOST]; size_t count; } kept;	/* the oldest first */

static int socket_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		http.MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

	return info ? info->connect_fd : -1;
}

static void forget_connection(size_t i)
{
	memmove(&kept.fds[i], &kept.fds[i + 1], (--kept.count - i) * sizeof(kept.fds[0]));
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **state,
			  enum MHD_ConnectionNotificationCode what)
{
	int fd = socket_of(connection);

	(void)arg, (void)state;
	for (size_t i = kept.count; i--;)
		if (kept.fds[i] == fd)
			forget_connection(i);
	if (what != MHD_CONNECTION_NOTIFY_STARTED || fd < 0)
		return;
	if (kept.count == CONNECTIONS_KEPT) {
		shutdown(kept.fds[0], SHUT_RDWR);
		forget_connection(0);
	}
	kept.fds[kept.count++] = fd;
}

/* Is a request meant for this server? A page in a browser may give its own host name this machine's address (DNS
 * rebinding), and then read our answers as its own server's. Such a request names that host, so at a loopback address
 * only an address, "localhost" and this machine's name are accepted. Other addresses serve everybody who reaches
 * them. */
static bool is_meant(struct MHD_Connection *connection)
{
	const char *named = http.MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
	struct sockaddr_in at = { .sin_port = 0 };
	char host[256], own[256] = "";
	socklen_t length = sizeof(at);
	struct in_addr address;

	if (!named || getsockname(socket_of(connection), (struct sockaddr *)&at, &length) ||
	    ntohl(at.sin_addr.s_addr) >> 24 != IN_LOOPBACKNET)
		return true;
	snprintf(host, sizeof(host), "%.*s", (int)strcspn(named, ":"), named);
	gethostname(own, sizeof(own) - 1);
	return inet_pton(AF_INET, host, &address) == 1 || !strcasecmp(host, "localhost") ||
	       (own[0] && !strcasecmp(host, own)) || named[0] == '[';
}

/* ---- requests ---------------------------------------------------------------------------------- */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned int status, const char *type, char *text,
			      size_t bytes, enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *response = http.MHD_create_response_from_buffer(bytes, text, mode);
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	http.MHD_add_response_header(response, "Content-Type", type);
	result = http.MHD_queue_response(connection, status, response);
	http.MHD_destroy_response(response);
	return result;
}

static enum MHD_Result say(struct MHD_Connection *connection, unsigned int status, const char *text)
{
	return answer(connection, status, "text/plain; charset=utf-8", (char *)(uintptr_t)text, strlen(text),
		      MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result handle(void *arg, struct MHD_Connection *connection, const char *path, const char *method,
			      const char *version, const char *upload, size_t *upload_bytes, void **state)
{
	const char *accept = http.MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Accept");
	bool is_openmetrics = accept && strstr(accept, "application/openmetrics-text");
	size_t bytes = 0;
	char *page;

	(void)arg, (void)version, (void)upload, (void)upload_bytes, (void)state;
	if (!is_meant(connection))
		return say(connection, 403, "Ask by an address, as localhost, or by this machine's name.\n");
	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return say(connection, 405, "This only answers GET and HEAD.\n");
	if (strcmp(path, "/metrics"))
		return say(connection, strcmp(path, "/") ? 404 : 200, "The metrics are at /metrics.\n");
	page = make_page(is_openmetrics, &bytes);
	if (!page)
		return say(connection, 503, "There is too little memory for the page.\n");
	return answer(connection, 200, is_openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8" :
		      "text/plain; version=0.0.4; charset=utf-8", page, bytes, MHD_RESPMEM_MUST_FREE);
}

/* ---- start and end ----------------------------------------------------------------------------- */

/* Read "[ADDRESS:]PORT"; without ADDRESS, take the loopback address. Returns false: it is none. */
static bool read_address(const char *text, struct sockaddr_in *ret)
{
	const char *colon = strrchr(text, ':');
	char host[64], *end;
	unsigned long port = strtoul(colon ? colon + 1 : text, &end, 10);

	*ret = (struct sockaddr_in){ .sin_family = AF_INET };
	snprintf(host, sizeof(host), "%.*s", colon ? (int)(colon - text) : 0, text);
	ret->sin_port = htons((uint16_t)port);
	return *end == '\0' && end[-1] >= '0' && end[-1] <= '9' && port < 65536 &&
	       inet_pton(AF_INET, host[0] ? host : "127.0.0.1", &ret->sin_addr) == 1;
}

static int serve(const char *where, const struct sockaddr_in *address)
{
	struct sockaddr_in bound = *address;
	socklen_t length = sizeof(bound);
	struct MHD_Daemon *daemon = NULL;
	const char *missing = find_http();
	int fd, one = 1, number = 0;
	char host[64];
	sigset_t ends;

	if (missing) {
		fprintf(stderr, "gpumem serve: %s\n", missing);
		return GM_EXIT_FAILED;
	}
	/* Block these signals before there is another thread, which must not get them. */
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	signal(SIGPIPE, SIG_IGN);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) &&
	    !bind(fd, (const struct sockaddr *)address, sizeof(*address)) && !listen(fd, SOMAXCONN) &&
	    !getsockname(fd, (struct sockaddr *)&bound, &length))
		daemon = http.MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, handle, NULL,
					       MHD_OPTION_LISTEN_SOCKET, fd,
					       MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MOST,
					       MHD_OPTION_NOTIFY_CONNECTION, on_connection, NULL,
					       MHD_OPTION_CONNECTION_TIMEOUT, 30u, MHD_OPTION_END);
	if (!daemon) {
		fprintf(stderr, "gpumem serve: %s: %s\n", gm_show_clean(where), strerror(errno));
		if (fd >= 0)
			close(fd);
		return GM_EXIT_FAILED;
	}
	printf("http://%s:%u/metrics\n", inet_ntop(AF_INET, &bound.sin_addr, host, sizeof(host)),
	       ntohs(bound.sin_port));
	fflush(stdout);
	while (sigwait(&ends, &number) && !number)
		;
	http.MHD_stop_daemon(daemon);
	return GM_EXIT_OK;
}

#else

static bool read_address(const char *text, struct sockaddr_in *ret)
{
	(void)text, (void)ret;
	return true;
}

static int serve(const char *where, const struct sockaddr_in *address)
{
	(void)where, (void)address;
	fputs("gpumem serve: this gpumem was built without the headers of libmicrohttpd (Debian: "
	      "libmicrohttpd-dev)\n", stderr);
	return GM_EXIT_FAILED;
}

#endif

int gm_verb_serve(int argc, char **argv)
{
	const char *where = NULL;
	struct sockaddr_in address = { .sin_port = 0 };
	const struct gm_argument arguments[] = { { "prometheus", GM_ARG_TEXT, &where }, { NULL, 0, NULL } };
	int status = gm_arguments(argc, argv, arguments, 0, 0);

	if (status >= 0)
		return status;
	if (!where) {
		fputs("gpumem serve: --prometheus ADDRESS:PORT says where (gpumem help serve)\n", stderr);
		return GM_EXIT_USAGE;
	}
	if (!read_address(where, &address))
		return gm_argument_wrong("serve", "prometheus", where,
					 "not an IPv4 address and a port, as 127.0.0.1:9847");
	return serve(where, &address);
}
