/*
 * scenarios.c - run one named scenario (scenario.h), or list all.
 *
 * usage: scenarios NAME; scenarios --list: name, rules that it tests, environment, whether it is correct without
 * the library, and its description, separated by tabs.
 *
 * Thread context: one thread, unless the scenario makes more.
 */
#include <unistd.h>

#include "test/model/scenario.h"

#define LIMIT_S 60

static const struct row { const char *name; void (*run)(void); const char *rules, *environment;
			  bool alone; const char *what; } rows[] = {
#define SCENARIO(name, rules, environment, alone, what) \
	{ #name, scenario_##name, rules, environment, alone, what },
#include "test/model/scenarios.def"
#undef SCENARIO
};

int main(int argc, char **argv)
{
	int (*driver_check)(void), (*library_check)(void);

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && argc == 2; i++) {
		if (!strcmp(argv[1], "--list"))
			printf("%s\t%s\t%s\t%d\t%s\n", rows[i].name, rows[i].rules,
			       rows[i].environment, rows[i].alone, rows[i].what);
		if (strcmp(argv[1], rows[i].name))
			continue;
		alarm(LIMIT_S);
		rows[i].run();
		driver_check = (int (*)(void))control("fakecuda_check");
		library_check = (int (*)(void))dlsym(RTLD_DEFAULT, "gpumem_test_check");
		must(!driver_check(), "the driver's structures are wrong");
		must(!library_check || !library_check(), "the library's structures are wrong");
		return 0;
	}
	return argc == 2 && !strcmp(argv[1], "--list") ? 0 : 2;
}
