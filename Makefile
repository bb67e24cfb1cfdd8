# libgpumem: one Makefile. It calls itself for variants and after scripts/setup.sh. `make help` lists the targets.
#   V=1           show the commands          SAN=address|undefined|thread   build that variant;
#                                            address includes UBSan
#   RULES=1       the library with rules that tests can switch off (allocator/rules.h), build/rules/
#   CFLAGS=...    replaces "-O2 -g"          CUDA_HOME=/usr/local/cuda      the CUDA toolkit

VERSION := $(shell sed -n 's/^.define GPUMEM_VERSION_STRING "\(.*\)"/\1/p' preload/api/gpumem.h)
SAN     ?=
RULES   ?=
BUILD   := build$(if $(RULES),/rules)$(if $(SAN),/$(SAN))
PLAIN   := build$(if $(SAN),/$(SAN))
comma   := ,
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)
Q       := $(if $(V),,@)
say      = $(if $(V),,@printf '  %-8s %s\n' '$(1)' '$(2)')

# ---- the toolkit and the libraries -------------------------------------------------------------
ifndef CUDA_HOME
CUDA_HOME := $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc 2>/dev/null)))
ifeq ($(CUDA_HOME),)
CUDA_HOME := $(firstword $(wildcard /usr/local/cuda /opt/cuda) $(lastword $(sort $(wildcard /usr/local/cuda-*))))
endif
endif
NVCC      := $(CUDA_HOME)/bin/nvcc
CUDA_INC  := $(CUDA_HOME)/include
CUDA_STUB := $(firstword $(wildcard $(CUDA_HOME)/lib64/stubs/libcuda.so $(CUDA_HOME)/targets/*/lib/stubs/libcuda.so))
PYTHON    ?= python3

# Sanitizers find no more at -O2, which takes up to twice as long to compile as -O1. Their reports need lines and no
# variables: -g1.
CFLAGS  ?= $(if $(SAN),-O1 -g1,-O2 -g)
WARN    := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla \
	   $(if $(CI)$(WERROR),-Werror)
# -Wno-tsan: gcc warns of every fence; the readers' fences are in functions that are not instrumented.
# -Wno-stringop-overread: gcc takes ASan's padding around a text for the text's end.
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN:address=address$(comma)undefined) -fno-omit-frame-pointer $(if $(filter address undefined,$(SAN)),-fno-sanitize-recover=undefined)) \
	    $(if $(filter thread,$(SAN)),-Wno-tsan -Wno-unknown-warning-option) \
	    $(if $(filter address,$(SAN)),-Wno-stringop-overread -Wno-unknown-warning-option)
ALLC     = -std=gnu11 $(WARN) -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-strict-aliasing \
	   -pthread -MMD -MP -I. -isystem $(CUDA_INC) -DGPUMEM_VERSION='"$(VERSION)"' $(SANFLAGS) $(CFLAGS)
JANSSON_LIBS  = $(shell pkg-config --exists jansson 2>/dev/null && echo -l:libjansson.a)
ZLIB_LIBS     = $(shell pkg-config --exists zlib 2>/dev/null && echo -l:libz.a)
# gpumem symbolize finds lines with libdw and demangles C++ and Rust names with libiberty, if they are installed. Of
# libdw only the headers are needed here, because it is opened at run time.
HAVE_LIBDW    = $(wildcard $(shell pkg-config --variable=includedir libdw 2>/dev/null)/elfutils/libdw.h)
HAVE_HTTP     = $(wildcard $(shell pkg-config --variable=includedir libmicrohttpd 2>/dev/null)/microhttpd.h)
HAVE_IBERTY   = $(wildcard /usr/include/libiberty/demangle.h)
CHECK_LIBS    = $(shell pkg-config --libs check 2>/dev/null)

# ---- sources and programs ----------------------------------------------------------------------
obj = $(patsubst %,$(BUILD)/obj/%.o,$(1))
CORE_SRC  := $(wildcard allocator/*.c recorder/*/*.c)
# The part of the cache that needs no driver: heaps with records in the journal, thread caches, and the order of reuse.
CACHE_SRC := $(wildcard preload/cache/cache_heap*.c preload/cache/thread_cache*.c preload/order/reuse*.c preload/order/timeline*.c)
PRE_SRC   := $(wildcard preload/*/*.c preload/*/*.S)
TOOLS_SRC := $(wildcard tools/*/*.c)
# Only in the library with RULES=1; the unit tests use its two checks of structures.
RULES_SRC := $(wildcard test/rules/*.c)
# The library's code that parses options and a heap's settings; the command uses it, too.
OPTION_SRC := preload/options/options.c preload/options/options_value.c preload/options/options_format.c preload/options/text.c
# Lets the library and the command run on systems older than the one that they were built on.
OLD_SRC := preload/process/old_glibc.c
FAKE_SRC  := $(wildcard $(addprefix test/fakecuda/,*.c $(addsuffix /*.c,code graph memory race stream)))
RT_SRC    := $(wildcard test/fakecuda/cudart/*.c)
# All unit test programs are built in one folder, wherever their sources are.
UNIT_ROOMS := allocator cache journal modules order preload read stacks
UNIT_SRC  := $(wildcard $(patsubst %,test/unit/%/test_*.c,$(UNIT_ROOMS)))
UNIT      := $(patsubst %.c,$(BUILD)/test/unit/%,$(notdir $(UNIT_SRC)))
FAKETEST  := $(patsubst test/fakecuda/tests/%.c,$(BUILD)/test/fakecuda/%,$(wildcard test/fakecuda/tests/test_*.c))
APPS_C    := $(patsubst test/apps/%.c,$(BUILD)/test/apps/%,$(wildcard test/apps/*.c))
APPS_CU   := $(foreach a,$(basename $(notdir $(wildcard test/apps/*.cu))),$(BUILD)/test/apps/$(a).static $(BUILD)/test/apps/$(a).shared)
CONF      := $(foreach a,$(basename $(notdir $(wildcard test/conformance/*.cu))),$(BUILD)/test/conformance/$(a).static $(BUILD)/test/conformance/$(a).shared)
PRETEST_L := $(patsubst test/preload/programs/%.c,$(BUILD)/test/preload/%.so,$(wildcard test/preload/programs/lib*.c))
PRETEST_C := $(patsubst test/preload/programs/%.c,$(BUILD)/test/preload/%,$(filter-out test/preload/programs/lib%,$(wildcard test/preload/programs/*.c))) \
	     $(patsubst test/preload/programs/%.cc,$(BUILD)/test/preload/%,$(wildcard test/preload/programs/*.cc)) $(PRETEST_L) \
	     $(addprefix $(BUILD)/test/preload/torch/,libc10.so libc10_cuda.so libc10-other.so libc10_cuda-other.so)
HOOKED    := $(addprefix $(BUILD)/test/hooked/,app_ctx app_driver app_fail app_frees app_graph app_hostfn app_ipc \
	     app_lives app_pools app_random app_vmm many crash scenarios)
HOOKTEST  := $(patsubst test/hooked/%.c,$(BUILD)/test/hooked/%,$(wildcard test/hooked/test_*.c))
FUZZ      := $(patsubst test/fuzz/%.c,$(BUILD)/test/fuzz/%,$(wildcard test/fuzz/fuzz_*.c))
BENCH     := $(patsubst test/bench/%.c,$(BUILD)/test/bench/%,$(wildcard test/bench/bench_*.c))
# make bench runs these on the fake driver.
CALLS     := $(BUILD)/test/bench/calls.static $(BUILD)/test/bench/trivial.so $(BUILD)/test/bench/fill
SCRIPTS   := $(sort $(wildcard test/preload/test_*.py test/preload/test_*.sh test/tools/test_*.py test/tools/test_*.sh \
	     test/conformance/test_*.sh test/conformance/test_*.py test/apps/test_*.py test/apps/test_*.sh \
	     test/docs/test_*.py test/docs/test_*.sh test/model/test_*.py test/security/test_*.py test/python/test_*.py \
	     test/viewer/test_*.mjs))
# The tests of each sanitizer. A program with one thread has no race, so it does not run under TSan. Code that is loaded
# into Python cannot run under ASan: the plain test_python loads pyframes_ubsan.so, which has UBSan.
THREADED   := $(patsubst %.c,$(BUILD)/test/unit/%,$(notdir $(shell grep -l pthread_create $(UNIT_SRC))))
# Of the fake driver's tests only those with threads, because HOOKTEST runs the driver under ASan and TSan, too.
FAKE_THREADED := $(patsubst test/fakecuda/tests/%.c,$(BUILD)/test/fakecuda/%,$(shell grep -l pthread_create test/fakecuda/tests/test_*.c))
TSAN_TESTS  = $(THREADED) $(FAKE_THREADED) $(HOOKTEST)
# These kill children at random and at every instruction, and take half a minute each. They find wrong journals without
# ASan, and fuzz_journal and test_moments run the readers of damaged journals under ASan.
SLOW_IN_ASAN = $(addprefix $(BUILD)/test/unit/test_,cache_heap_moments kill_step)
ASAN_TESTS  = $(filter-out $(SLOW_IN_ASAN),$(UNIT)) $(FAKE_THREADED) $(HOOKTEST) $(FUZZ)
# Tests that take longer than about ten seconds or need another variant; make check-fast leaves them out.
SLOW_TESTS  = $(addprefix test/preload/test_,abi.py closefrom.py conservation.py crash.py host.py kills.py pools.py \
	      sanitized.py storms.py) \
	      $(addprefix test/tools/test_,convert_torch.py exit_codes.py help.py large.py run.py search.py snapshot.py \
	      symbolize.py top.py) \
	      $(addprefix test/security/test_,bombs.py result_places.py sparse_journal.py terminal.py) $(wildcard test/model/test_*.py) \
	      $(addprefix $(BUILD)/test/unit/test_,cache_heap cache_heap_moments kill kill_step python)
variant     = $(patsubst build/%,build/$(1)/%,$(2))
# The model of random programs, and the named programs (test/model/).
SCENARIOS := $(wildcard test/model/scenario*.c) test/model/scene.c
BESIDE    := $(wildcard test/model/beside*.c) test/model/scene.c
MODEL     := $(addprefix $(BUILD)/test/model/,model scenarios beside)

FAKE_SO := $(BUILD)/fakecuda/libcuda.so.1
RT_SO   := $(BUILD)/fakecuda/libcudart.so.13
RT_A    := $(BUILD)/fakecuda/libcudart_static.a

# ---- targets -----------------------------------------------------------------------------------
.PHONY: all help setup demo check check-fast check-quick check-only check-built built-rules built-address built-thread \
	built-aarch64 aarch64-parts check-abi check-asan check-ubsan check-tsan tests bench bench-steps fuzz \
	lint install install-binaries wheel uninstall clean gpu-check cuda-found always dist dist-tools dist-tar dist-deb dist-rpm check-more check-packages check-pythons check-aarch64 check-aarch64-fast aarch64-tests aarch64-programs check-fleet
.DELETE_ON_ERROR:
.SECONDARY:

all: $(BUILD)/libgpumem.so $(BUILD)/gpumem $(BUILD)/man/made

help:
	@echo 'make            build/libgpumem.so and build/gpumem'
	@echo 'make demo       set up, build, run a CUDA program under the library, show what it recorded'
	@echo 'make check      set up, build, run every test'
	@echo 'make check-fast what takes a moment each of that, without sanitizers: three minutes on two cores'
	@echo 'make check-asan check-ubsan check-tsan   the tests that run under a sanitizer'
	@echo 'make dist       packages, in build/dist: a tarball with an installer, .deb, .rpm, a wheel'
	@echo 'make check-more what takes other tools: check-packages, each package in an empty root; check-fleet'
	@echo 'make check-pythons   Python stacks in the Pythons of other releases of Debian, which it fetches (1.5 GB);'
	@echo '                PYTHONS_FROM_SOURCE=1 builds free-threaded ones, too'
	@echo 'make check-aarch64   the tests for aarch64, by qemu; check-aarch64-fast is programs under the library, without unit tests'
	@echo 'make bench      what allocations cost beside the driver, on the fake one; bench-steps: single steps of the library'
	@echo 'make check-abi fuzz lint install uninstall wheel gpu-check clean compile_commands.json'

cuda-found:
	@test -r '$(CUDA_INC)/cudaTypedefs.h' || { echo 'libgpumem: no CUDA toolkit found (looked at CUDA_HOME, nvcc on the PATH, /usr/local/cuda, /opt/cuda): install it or set CUDA_HOME=' >&2; exit 1; }

setup:
	$(Q)scripts/setup.sh check

# Set up, then call make again, because pkg-config must be asked again after packages were installed.
demo:
	$(Q)scripts/setup.sh demo
	$(Q)$(MAKE) --no-print-directory all demo-parts
	$(Q)scripts/demo.sh

demo-parts: $(BUILD)/demo_app

check:
	$(Q)scripts/setup.sh check
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) check-only WERROR=1

# As check, but only the quick tests. make is called again, because the installed packages decide what is built.
check-fast:
	$(Q)scripts/setup.sh check
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) check-quick
check-quick: all tests
	$(Q)$(PYTHON) test/run.py --build $(BUILD) \
		$(filter-out $(SLOW_TESTS),$(SCRIPTS) $(UNIT) $(FAKETEST) $(HOOKTEST))

# All variants share one set of jobs. No two variants share a file, except that the rules share the plain variant's.
# Slow tests are started first, so that no core waits for one of them at the end.
CHECKED = $(SCRIPTS) $(call variant,thread,$(TSAN_TESTS)) $(call variant,address,$(ASAN_TESTS)) \
	  $(UNIT) $(FAKETEST) $(HOOKTEST)
check-only: check-built
	$(Q)scripts/lint.sh
	$(Q)$(PYTHON) test/run.py --build build $(filter $(SLOW_TESTS),$(CHECKED)) $(filter-out $(SLOW_TESTS),$(CHECKED))
# All variants of the command share one page, which is made first.
built-address built-thread built-aarch64: | build/viewer.html
check-built: all tests built-rules built-address built-thread built-aarch64
built-rules: all
	+$(Q)$(MAKE) --no-print-directory RULES=1 build/rules/libgpumem.so
built-address built-thread: built-%:
	+$(Q)$(MAKE) --no-print-directory SAN=$* sanitizer-tests

# For aarch64, with Debian's cross compiler at -O0, to see that all compiles. The library is linked, but the command's
# objects are not, because the check has no jansson for aarch64. make check-aarch64 gets it with scripts/arm-root.sh,
# and runs the tests in qemu.
ARM      := build/aarch64
ARM_ROOT ?= $(CURDIR)/$(ARM)/root
ARM_LIB  := $(ARM_ROOT)/usr/lib/aarch64-linux-gnu
ARM_MAKE  = $(MAKE) --no-print-directory BUILD=$(ARM) PLAIN=$(ARM) CROSS=aarch64-linux-gnu- MACHINE=aarch64 \
	    CC='aarch64-linux-gnu-gcc $(ARM_LINK)' CXX='aarch64-linux-gnu-g++ $(ARM_LINK)' AR=aarch64-linux-gnu-ar
# Where programs find aarch64's libraries on this machine; the library itself has no search path. qemu's option -L would
# also give programs another root directory.
ARM_LINK := -Wl,--dynamic-linker=/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1,-rpath,/usr/aarch64-linux-gnu/lib,--disable-new-dtags
built-aarch64:
	+$(Q)$(ARM_MAKE) CFLAGS='-O0 -idirafter /usr/include' aarch64-parts
aarch64-parts: $(BUILD)/libgpumem.so $(call obj,$(TOOLS_SRC))
check-aarch64:      ARM_GOAL := aarch64-tests
check-aarch64-fast: ARM_GOAL := aarch64-programs
check-aarch64-fast: ARM_PARTS := preloaded ends scripts
check-aarch64 check-aarch64-fast: all
	$(Q)scripts/setup.sh more
	$(Q)scripts/arm-root.sh $(ARM_ROOT)
	+$(Q)$(ARM_MAKE) CFLAGS='-O2 -g -isystem $(ARM_ROOT)/usr/include -isystem $(ARM_ROOT)/usr/include/aarch64-linux-gnu' \
		LDFLAGS=-L$(ARM_LIB) CHECK_LIBS='-L$(ARM_LIB) -lcheck_pic -l:libsubunit.a -lm' JANSSON_LIBS='-L$(ARM_LIB) -l:libjansson.a' \
		ZLIB_LIBS=-l:libz.a HAVE_IBERTY=$(ARM_ROOT)/usr/include/libiberty/demangle.h $(ARM_GOAL)
	$(Q)AARCH64_PARTS='$(ARM_PARTS)' $(PYTHON) test/run.py --build $(ARM) test/aarch64/test_aarch64.py
# Not for aarch64: these step through single instructions of x86-64, or contain its tables.
ARM_WITHOUT = $(addprefix $(BUILD)/test/unit/test_,cache_heap_moments cfi kill_step page_map_moments)
# The preload tests' programs in C, and the libraries that they load.
PRETEST_ARM = $(patsubst test/preload/programs/%.c,$(BUILD)/test/preload/%,$(filter-out test/preload/programs/lib%,$(wildcard test/preload/programs/*.c))) $(PRETEST_L)
aarch64-programs: $(BUILD)/libgpumem.so $(BUILD)/gpumem $(APPS_C) $(PRETEST_ARM)
aarch64-tests: aarch64-programs $(filter-out $(ARM_WITHOUT),$(UNIT)) $(FAKETEST) $(HOOKTEST) $(BUILD)/test/model/scenarios

tests: $(UNIT) $(FAKETEST) $(HOOKTEST) $(APPS_C) $(APPS_CU) $(CONF) $(PRETEST_C) $(FUZZ) $(MODEL) $(CALLS)
sanitizer-tests: $(if $(filter thread,$(SAN)),$(TSAN_TESTS),$(ASAN_TESTS)) $(HOOKED)

# Checks that need tools which the check does not need; without check-aarch64, which takes longer than the check.
check-more:
	$(Q)scripts/setup.sh more
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) check-packages check-fleet
check-fleet: all tests
	$(Q)$(PYTHON) test/run.py --build $(BUILD) test/fleet/test_prometheus.py
# Test Python stacks in the interpreters of other Debian releases. PYTHONS=PATH:PATH names more; PYTHONS_FROM_SOURCE=1
# builds free-threaded ones, for which Debian has no package (scripts/pythons.sh).
check-pythons: all $(FAKE_SO) $(BUILD)/test/unit/python/pyframes.so
	$(Q)scripts/pythons.sh $(BUILD)/pythons
	$(Q)PYTHON_ROOTS=$(BUILD)/pythons $(PYTHON) test/run.py --build $(BUILD) test/python/test_matrix.py
check-packages: dist tests
	$(Q)$(PYTHON) test/run.py --build $(BUILD) test/packages/test_packages.py

check-asan check-ubsan check-tsan:
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) SAN=$(SAN_OF_$@) sanitizer-tests
	$(Q)$(PYTHON) test/run.py --build build/$(SAN_OF_$@) test/preload/test_sanitized.py \
		$(call variant,$(SAN_OF_$@),$(if $(filter check-tsan,$@),$(TSAN_TESTS),$(ASAN_TESTS)))
SAN_OF_check-asan := address
SAN_OF_check-ubsan := undefined
SAN_OF_check-tsan := thread

check-abi: all built-aarch64
	$(Q)$(PYTHON) test/run.py --build $(BUILD) test/preload/test_abi.py

bench: all $(CALLS) $(BUILD)/test/bench/bench_heaps $(BUILD)/test/preload/torch/libc10_cuda.so
	$(Q)$(PYTHON) scripts/bench.py
# Measure single steps of the library, with one program for each.
bench-steps: all tests $(BENCH)
	$(Q)for step in $(filter-out %/bench_heaps,$(BENCH)); do echo "== $${step##*/}"; $$step || exit 1; done
	$(Q)B=$(BUILD) $(PYTHON) test/bench/bench_verbs.py
	$(Q)node test/bench/bench_viewer.mjs

fuzz: $(FUZZ)
	$(Q)for f in $(FUZZ); do echo "$$f"; SEED=$${SEED:-new} $$f $${FUZZ_RUNS:-200000} || exit 1; done

gpu-check: all
	$(Q)scripts/gpu-check.sh

lint:
	$(Q)scripts/lint.sh

# For clangd and clang-tidy: how this Makefile compiles each file.
compile_commands.json: always
	$(Q)$(MAKE) --no-print-directory -nB V=1 all tests | $(PYTHON) scripts/compile_commands.py >$@

clean:
	rm -rf build compile_commands.json

# ---- the library -------------------------------------------------------------------------------
$(BUILD)/libgpumem.so: $(call obj,$(CORE_SRC) $(PRE_SRC) $(if $(RULES),$(RULES_SRC))) $(BUILD)/gpumem.map
	$(call say,LD,$@)
	$(Q)$(filter-out $(ARM_LINK),$(CC)) -shared $(SANFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,-soname,libgpumem.so \
		-Wl,--version-script=$(BUILD)/gpumem.map -Wl,-Bsymbolic-functions \
		-Wl,-z,defs,-z,now,-z,relro,-z,nodelete,--as-needed -pthread

$(BUILD)/gpumem.map: preload/hooks/hooks.def preload/driver/exports.def test/rules/exports.def scripts/exports.sh
	@mkdir -p $(@D)
	$(call say,MAP,$@)
	$(Q)scripts/exports.sh preload/hooks/hooks.def preload/driver/exports.def $(if $(RULES),test/rules/exports.def) >$@

$(BUILD)/libgm_core.a: $(call obj,$(CORE_SRC) $(CACHE_SRC) $(OPTION_SRC))
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# ---- the command -------------------------------------------------------------------------------
# On an older glibc the command needs libpthread and libdl; a newer glibc has stubs of these.
TOOLS_LIBS = $(JANSSON_LIBS) $(ZLIB_LIBS) $(if $(HAVE_IBERTY),-l:libiberty.a)
$(BUILD)/gpumem: $(call obj,tools/verbs/main.c $(OLD_SRC)) $(BUILD)/libgm_tools.a $(BUILD)/libgm_core.a
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(TOOLS_LIBS) -pthread -Wl,-z,now,-z,relro,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2
	$(if $(HAVE_LIBDW),,@echo '  gpumem will show names but no source lines: no libdw headers here (Debian: libdw-dev)')
	$(if $(HAVE_HTTP),,@echo '  gpumem serve will say that it cannot: no libmicrohttpd headers here (Debian: libmicrohttpd-dev)')
	$(if $(HAVE_IBERTY),,@echo '  gpumem will show C++ and Rust names as they are: no libiberty here (Debian: libiberty-dev)')

# All of the command except main(), for tests and fuzz targets.
$(BUILD)/libgm_tools.a: $(call obj,$(filter-out tools/verbs/main.c,$(TOOLS_SRC)))
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# A file that names the optional libraries that are installed. When it changes, the files that use them are compiled
# again.
$(call obj,tools/symbols/dwarf.c tools/symbols/demangle.c tools/verbs/serve.c): $(BUILD)/obj/tools/libraries
$(BUILD)/obj/tools/libraries: always
	@mkdir -p $(@D); echo '$(HAVE_LIBDW) $(HAVE_IBERTY) $(HAVE_HTTP)' | cmp -s - $@ || echo '$(HAVE_LIBDW) $(HAVE_IBERTY) $(HAVE_HTTP)' >$@

# The command prints its manual pages and completion from its own tables.
$(BUILD)/man/made: $(BUILD)/gpumem
	$(call say,MAN,$(@D))
	$(Q)rm -rf $(@D) && mkdir -p $(@D)
	$(Q)for verb in $$($< help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do \
		$< help --man $$verb >$(@D)/gpumem-$$verb.1 || exit 1; done
	$(Q)$< help --man gpumem >$(@D)/gpumem.1 && $< help --man libgpumem >$(@D)/libgpumem.7
	$(Q)$< help --completion bash >$(@D)/gpumem.bash && $< help --completion zsh >$(@D)/_gpumem
	$(Q)$< help --completion fish >$(@D)/gpumem.fish
	$(Q)touch $@

# The viewer's page, which is embedded in the command. node makes it, with the bundler that scripts/setup.sh installs.
# Without these the page is empty, and `gpumem view` says that it has no page.
VIEW_PAGE := build/viewer.html
VIEW_SRC  := $(wildcard tools/viewer/*.mjs tools/viewer/page/* tools/viewer/src/*.js tools/viewer/src/*/*.js)
ESBUILD    = $(if $(shell command -v node 2>/dev/null),$(wildcard tools/viewer/node_modules/.package-lock.json))
# An empty page was made before the bundler was installed: it is out of date.
$(if $(ESBUILD),$(shell test -s $(VIEW_PAGE) || { mkdir -p build && touch -d @0 $(VIEW_PAGE); }))

# The page reads journals with the command's own reader, as WebAssembly, if clang can make that here. An empty reader is
# out of date once clang can. In the check it is an error if clang fails to compile the reader. The mutex in a journal's
# header has the size that it has on this machine.
VIEW_READER := build/journal.wasm
READER_SRC  := tools/viewer/journal/reader.c $(patsubst %,recorder/%.c,journal/plan modules/names record/stats_table \
	       snapshot/jsonw $(addprefix read/copy_,access events frees lives make resolve sites) \
	       $(addprefix snapshot/snapshot_,devices emit failure pools process segments stacks traces))
READER_HAS   = $(and $(ESBUILD),$(shell command -v clang 2>/dev/null),$(shell command -v wasm-ld 2>/dev/null),$(wildcard \
	       /usr/include/wasm32-wasi/stdio.h),$(wildcard $(shell clang --target=wasm32-wasi -print-libgcc-file-name 2>/dev/null)))
READER_LINK  = -nostartfiles -Wl,--no-entry,--gc-sections,--strip-all,--stack-first,-z,stack-size=262144
READER_MAKE  = bytes=$$(printf '\043include <pthread.h>\nbytes __SIZEOF_PTHREAD_MUTEX_T\n' | cc -E -P - | sed -n 's/^bytes //p') && \
	       clang --target=wasm32-wasi -O2 -std=gnu11 -Wall -Wextra $(if $(CI)$(WERROR),-Werror) -fno-strict-aliasing \
	       -D_WASI_EMULATED_MMAN -DGM_MUTEX_BYTES=$$bytes -include tools/viewer/journal/system.h \
	       -isystem tools/viewer/journal/include -I. $(READER_LINK) -o $@.$$$$ $(READER_SRC) \
	       -lc-printscan-no-floating-point && mv $@.$$$$ $@
$(if $(READER_HAS),$(shell test -s $(VIEW_READER) || { mkdir -p build && touch -d @0 $(VIEW_READER); }))
$(VIEW_READER): $(READER_SRC) $(wildcard tools/viewer/journal/*.h recorder/*/*.h allocator/*.h)
	@mkdir -p $(@D)
	$(call say,WASM,$@)
	$(Q){ $(if $(READER_HAS),$(READER_MAKE),false); } || { : >$@; echo '  the page of gpumem view will not read journals:' \
		'clang makes no WebAssembly here (Debian: clang lld wasi-libc libclang-rt-14-dev-wasm32)'$(if $(and \
		$(READER_HAS),$(CI)$(WERROR)),; false); }

$(VIEW_PAGE): $(VIEW_SRC) $(ESBUILD) $(if $(ESBUILD),$(VIEW_READER))
	@mkdir -p $(@D)
	$(call say,PAGE,$@)
	$(Q)$(if $(ESBUILD),node tools/viewer/build.mjs $@ $(VIEW_READER),: >$@; \
		echo '  gpumem view will have no page: no node, or no bundler in tools/viewer (Debian: nodejs npm; then scripts/setup.sh demo)')
$(BUILD)/obj/tools/write/view.c.o: $(VIEW_PAGE)
$(BUILD)/obj/tools/verbs/completion.c.o: $(addprefix tools/verbs/completion.,bash zsh fish)
$(BUILD)/obj/tools/verbs/manual.c.o: tools/verbs/gpumem.1 tools/verbs/libgpumem.7
$(BUILD)/obj/tools/write/view.c.o: CFLAGS += -DGM_VIEW_PAGE='"$(VIEW_PAGE)"'

# ---- objects -----------------------------------------------------------------------------------
# Unit tests are compiled more often than they are run: -O1 takes two thirds of the time of -O2. UBSan looks at the
# library and the command only, because it doubles the time to compile.
$(PLAIN)/obj/test/%.o: SANFLAGS := $(subst address$(comma)undefined,address,$(SANFLAGS))
ifeq ($(origin CFLAGS),file)
$(PLAIN)/obj/test/unit/%.o $(PLAIN)/obj/test/hooked/%.o: CFLAGS := -O1 -g1
endif
$(PLAIN)/obj/%.c.o: %.c | cuda-found
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALLC) -c -o $@ $<

# Only files that read GM_TEST_RULES are compiled again; all other objects are the same with and without rules.
ifdef RULES
$(BUILD)/obj/%.c.o: $(PLAIN)/obj/%.c.o
	@mkdir -p $(@D)
	$(Q)if tr -d ':\\' <$(<:.o=.d) | xargs grep -qs GM_TEST_RULES; then \
		$(if $(V),,printf '  %-8s %s, rules\n' CC $*.c &&) $(CC) $(ALLC) -DGM_TEST_RULES=1 -c -o $@ $*.c; \
	else ln -f $< $@; fi
endif

$(BUILD)/obj/%.S.o: %.S
	@mkdir -p $(@D)
	$(call say,AS,$<)
	$(Q)$(CC) -fPIC -MMD -MP -I. $(CFLAGS) -c -o $@ $<

# ---- the driver without a GPU, and the stand-in runtime: for tests, never installed -------------
$(FAKE_SO): $(call obj,$(FAKE_SRC))
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(SANFLAGS) -o $@ $^ -Wl,-soname,libcuda.so.1,-Bsymbolic -Wl,-z,now -pthread
	$(Q)ln -sf libcuda.so.1 $(@D)/libcuda.so

# The runtime is compiled twice, because the CUDA names are exported in the shared one and hidden in the archive.
$(BUILD)/obj/shared/%.c.o: %.c | cuda-found
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(ALLC) -DCUDART_SHARED -c -o $@ $<

$(RT_SO): $(RT_SRC:%=$(BUILD)/obj/shared/%.o) test/fakecuda/cudart/libcudart.map
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(SANFLAGS) -o $@ $(filter %.o,$^) -Wl,-soname,libcudart.so.13 \
		-Wl,--version-script=test/fakecuda/cudart/libcudart.map -Wl,-z,defs -pthread -ldl
	$(Q)ln -sf libcudart.so.13 $(@D)/libcudart.so

$(RT_A): $(call obj,$(RT_SRC))
	@mkdir -p $(@D)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# ---- tests -------------------------------------------------------------------------------------
UNIT_AUX = $(call obj,$(wildcard test/unit/*/aux_*.c test/rules/*_check.c))
define UNIT_RULE
$(BUILD)/test/unit/%: $(BUILD)/obj/test/unit/$(1)/%.c.o $(UNIT_AUX) $(BUILD)/libgm_core.a
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(SANFLAGS) -rdynamic -o $$@ $$(filter %.o,$$^) -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group \
		$$(UNIT_LDFLAGS_$$*) $$(CHECK_LIBS) $$(JANSSON_LIBS) -pthread -ldl
endef
$(foreach room,$(UNIT_ROOMS),$(eval $(call UNIT_RULE,$(room))))

# This test uses the command's replay.
$(BUILD)/test/unit/test_heap_traces: $(BUILD)/libgm_tools.a
UNIT_LDFLAGS_test_heap_traces = $(TOOLS_LIBS)

# Libraries that the unwinder's tests load and unload. They are not instrumented in any variant.
UNWIND_LIBS := $(patsubst test/unit/unwind/%,$(BUILD)/test/unit/unwind/%.so, \
	       $(basename $(wildcard test/unit/unwind/*.c test/unit/unwind/*.cc)))
UNWIND_FLAGS_pyprobe := $(filter -fsanitize=undefined,$(SANFLAGS))
UNWIND_FLAGS_notables := -fno-asynchronous-unwind-tables -fno-unwind-tables -fno-exceptions
UNWIND_FLAGS_nobuildid := -Wl,--build-id=none
UNWIND_FLAGS_asker := -Wl,-z,noseparate-code,-z,norelro
UNWIND_BUILD = -fPIC -shared -I. -O2 -g $(UNWIND_FLAGS_$*) -MMD -MP -MF $(BUILD)/obj/unwind_$*.d -MT $@
$(BUILD)/test/unit/test_unwind $(BUILD)/test/unit/test_unwind_odd $(BUILD)/test/unit/test_stack_cache $(BUILD)/test/unit/test_modules \
$(BUILD)/test/unit/test_symbols $(BUILD)/test/unit/test_elf_file: | $(UNWIND_LIBS)
# Python cannot load code that is instrumented by ASan or TSan; in these variants pyprobe lacks the library's code.
$(BUILD)/test/unit/unwind/pyprobe.so: $(if $(filter address thread,$(SAN)),,$(BUILD)/libgm_core.a)
$(BUILD)/test/unit/unwind/%.so: test/unit/unwind/%.c
	@mkdir -p $(@D) $(BUILD)/obj
	$(call say,LD,$@)
	$(Q)$(CC) -std=gnu11 $(WARN) $(UNWIND_BUILD) -o $@ $< $(filter %.a,$^) -pthread -ldl

$(BUILD)/test/unit/unwind/%.so: test/unit/unwind/%.cc
	@mkdir -p $(@D) $(BUILD)/obj
	$(call say,LD,$@)
	$(Q)$(CXX) -Wall -Wextra $(UNWIND_BUILD) -o $@ $<

# The same for the library that test_python loads into the interpreters, and for a stand-in for an interpreter.
PYTHON_LIBS := $(addprefix $(BUILD)/test/unit/python/,pyframes.so fakepython.so $(if $(filter address thread,$(SAN)),,pyframes_ubsan.so))
$(BUILD)/test/unit/test_python $(BUILD)/test/bench/bench_python: | $(PYTHON_LIBS) $(UNWIND_LIBS)
$(BUILD)/test/unit/python/pyframes.so: $(if $(filter address thread,$(SAN)),,$(BUILD)/libgm_core.a)
$(BUILD)/test/unit/python/%.so: test/unit/python/%.c
	@mkdir -p $(@D) $(BUILD)/obj
	$(call say,LD,$@)
	$(Q)$(CC) -std=gnu11 $(WARN) -fPIC -shared -I. -O2 -g -fno-strict-aliasing $(filter -fsanitize=undefined,$(SANFLAGS)) \
		-MMD -MP -MF $(BUILD)/obj/python_$*.d -MT $@ -o $@ $(filter %.c %.a,$^) -pthread -ldl
# The same library with UBSan in the code that reads an interpreter, stacks and libraries. A cross compiler's UBSan is
# not installed, so the library is plain for another machine.
FRAMES_UBSAN := $(if $(CROSS),,-fsanitize=undefined -fno-sanitize-recover=undefined)
$(BUILD)/test/unit/python/pyframes_ubsan.so: test/unit/python/pyframes.c $(wildcard $(patsubst %,recorder/%/*.c,python stacks \
		unwind modules)) $(BUILD)/libgm_core.a
	@mkdir -p $(@D) $(BUILD)/obj
	$(call say,LD,$@)
	$(Q)$(CC) -std=gnu11 $(WARN) -fPIC -shared -I. -O1 -g1 -fno-strict-aliasing -pthread -DGPUMEM_VERSION='"$(VERSION)"' $(FRAMES_UBSAN) \
		-o $@ $(filter %.c %.a,$^) -ldl

# The library that bench_stacks loads into the interpreters.
$(BUILD)/test/bench/bench_stacks: | $(BUILD)/test/bench/stacks_load.so
$(BUILD)/test/bench/stacks_load.so: test/bench/stacks_load.c test/unit/python/pyframes.c $(BUILD)/libgm_core.a
	@mkdir -p $(@D) $(BUILD)/obj
	$(call say,LD,$@)
	$(Q)$(CC) -std=gnu11 $(WARN) -fPIC -shared -I. -O2 -g -fno-strict-aliasing -o $@ $^ -pthread -ldl

# The table of imports is preload's, but needs neither hooks nor driver.
$(BUILD)/test/unit/test_imports: $(call obj,preload/hooks/imports.c preload/process/slots.c)

$(BUILD)/test/fakecuda/%: $(BUILD)/obj/test/fakecuda/tests/%.c.o $(FAKE_SO)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) -o $@ $< -L$(BUILD)/fakecuda -lcuda -Wl,-rpath,'$$ORIGIN/../../fakecuda' $(CHECK_LIBS) -pthread -ldl

MODEL_LINK = $(CC) $(SANFLAGS) -o $@ $(filter %.o,$^) -L$(BUILD)/fakecuda -lcuda \
	     -Wl,-rpath,'$$ORIGIN/../../fakecuda' -pthread -ldl
$(BUILD)/test/model/model: $(call obj,$(filter-out $(SCENARIOS) $(BESIDE),$(wildcard test/model/*.c))) $(FAKE_SO)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(MODEL_LINK)

$(BUILD)/test/model/beside: $(call obj,$(BESIDE)) $(FAKE_SO)
$(BUILD)/test/model/scenarios: $(call obj,$(SCENARIOS)) $(FAKE_SO)
$(BUILD)/test/model/scenarios $(BUILD)/test/model/beside:
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(MODEL_LINK)

$(BUILD)/test/apps/%: $(BUILD)/obj/test/apps/%.c.o $(FAKE_SO)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $< -L$(BUILD)/fakecuda -lcuda -pthread -ldl

# lib*.c: libraries that a test loads into a host program.
$(BUILD)/test/preload/lib%.so: $(BUILD)/obj/test/preload/programs/lib%.c.o
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -shared -o $@ $< $(PRETEST_LDFLAGS_lib$*) -pthread -ldl

PRETEST_LDFLAGS_closer = -L$(BUILD)/fakecuda -lcuda
PRETEST_LDFLAGS_neighbour = -L$(BUILD)/fakecuda -lcuda
PRETEST_LDFLAGS_stack_room = -L$(BUILD)/fakecuda -lcuda
PRETEST_LDFLAGS_libstandin = -Wl,-soname,libcuda.so.1,-Bsymbolic
# Programs with the hooks linked in instead of preloaded. A sanitizer needs the C library's dlsym, so the library's own
# dlsym is left out, and all other files run under the sanitizer (test/preload/test_sanitized.py).
HOOKED_OBJ = $(call obj,$(filter-out preload/driver/dlsym.S,$(PRE_SRC))) $(BUILD)/libgm_core.a
HOOKED_LINK = $(CC) $(SANFLAGS) -rdynamic -o $@ $(filter %.o %.a,$^) -L$(BUILD)/fakecuda -lcuda \
	      -Wl,-rpath,'$$ORIGIN/../../fakecuda' -pthread -ldl
$(BUILD)/test/hooked/many $(BUILD)/test/hooked/crash: $(BUILD)/test/hooked/%: $(BUILD)/obj/test/preload/programs/%.c.o \
		$(HOOKED_OBJ) $(FAKE_SO)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(HOOKED_LINK)

$(BUILD)/test/hooked/scenarios: $(call obj,$(SCENARIOS)) $(HOOKED_OBJ) $(FAKE_SO)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(HOOKED_LINK)

# Tests of the hooks from inside the process; with --wrap a test counts calls between the library's files.
HOOKTEST_WRAP_test_work_hooks = gm_work_slow gm_host_submitted_slow
HOOKTEST_WRAP_test_pages = gm_order_behind_stream
$(BUILD)/test/hooked/test_%: $(BUILD)/obj/test/hooked/test_%.c.o $(call obj,test/unit/journal/aux_check.c) $(HOOKED_OBJ) $(FAKE_SO)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(HOOKED_LINK) $(addprefix -Wl$(comma)--wrap=,$(HOOKTEST_WRAP_test_$*)) $(CHECK_LIBS)

$(BUILD)/test/hooked/%: $(BUILD)/obj/test/apps/%.c.o $(HOOKED_OBJ) $(FAKE_SO)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(HOOKED_LINK)

PRETEST_LDFLAGS_errno_kept = -L$(BUILD)/fakecuda -lcuda
PRETEST_LDFLAGS_retry = -L$(BUILD)/fakecuda -lcuda
PRETEST_LDFLAGS_nvtx_mem = -L$(BUILD)/fakecuda -lcuda
PRETEST_LDFLAGS_writers = -L$(BUILD)/fakecuda -lcuda
$(addprefix $(BUILD)/test/preload/,errno_kept nvtx_mem retry writers): $(FAKE_SO)
PRETEST_LDFLAGS_journal_check = $(call obj,test/unit/journal/aux_check.c) $(BUILD)/libgm_core.a
$(BUILD)/test/preload/journal_check: $(PRETEST_LDFLAGS_journal_check)
$(BUILD)/test/preload/%: $(BUILD)/obj/test/preload/programs/%.c.o
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -rdynamic -o $@ $< $(PRETEST_LDFLAGS_$*) -pthread -ldl

$(BUILD)/test/preload/%: test/preload/programs/%.cc
	@mkdir -p $(@D) $(BUILD)/obj
	$(call say,LD,$@)
	$(Q)$(CXX) -std=gnu++17 -Wall -Wextra -O2 -g -I. -MMD -MP -MF $(BUILD)/obj/pretest_$*.d -MT $@ -rdynamic -o $@ $< \
		-pthread -ldl -lrt

# Stand-ins for PyTorch's libraries. They are called through the procedure linkage table, as PyTorch's are. A second
# pair has other names, as wheels rename their libraries, so that a process can have both. -fno-gnu-unique: no symbol
# keeps them loaded for ever.
TORCH := $(BUILD)/test/preload/torch
TORCH_LINK = $(CXX) -std=gnu++17 -Wall -Wextra -O2 -g -I. -isystem $(CUDA_INC) -fPIC -fno-gnu-unique -shared -o $@ $^ \
	     -Wl,-soname,$(@F) -Wl,-rpath,'$$ORIGIN' -pthread -ldl
$(TORCH)/libc10.so $(TORCH)/libc10-other.so: test/preload/programs/torch/c10.cc | test/preload/programs/torch/c10.h
$(TORCH)/libc10_cuda.so: test/preload/programs/torch/c10_cuda.cc $(TORCH)/libc10.so | test/preload/programs/torch/c10.h
$(TORCH)/libc10_cuda-other.so: test/preload/programs/torch/c10_cuda.cc $(TORCH)/libc10-other.so | test/preload/programs/torch/c10.h
$(TORCH)/%.so:
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(TORCH_LINK)

NVCCFLAGS_app_ptds := -default-stream per-thread
$(BUILD)/obj/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(NVCC) -O1 -arch=compute_75 --no-compress -I. $(NVCCFLAGS_$(*F)) -MMD -MP -MF $(@:.o=.d) -MT $@ -c -o $@ $<

$(BUILD)/test/%.static: $(BUILD)/obj/test/%.cu.o $(RT_A) | $(FAKE_SO)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(NVCC) -cudart none -o $@ $^ -lpthread -ldl -lrt

# The demo shows source lines. The tests expect stacks without lines of the same program, so the demo builds its own.
$(BUILD)/demo_app: test/apps/demo_app.cu $(RT_A) test/apps/app.h test/apps/child.h | $(FAKE_SO)
	$(call say,LD,$@)
	$(Q)$(NVCC) -g -O1 -arch=compute_75 --no-compress -I. -cudart none -o $@ $(filter-out %.h,$^) -lpthread -ldl -lrt

$(BUILD)/test/%.shared: $(BUILD)/obj/test/%.cu.o | $(RT_SO) $(FAKE_SO)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(NVCC) -cudart none -o $@ $< -L$(BUILD)/fakecuda -lcudart -lpthread -ldl -lrt

# This target checks the rules of a journal.
$(BUILD)/test/fuzz/fuzz_journal: $(call obj,test/unit/journal/aux_check.c)

# The target of the verbs includes main.c, under another name.
$(BUILD)/test/fuzz/fuzz_pickle $(BUILD)/test/fuzz/fuzz_verbs: $(BUILD)/libgm_tools.a

# A fuzz target has LLVMFuzzerTestOneInput, and a main() that replays its corpus.
$(BUILD)/test/fuzz/%: $(BUILD)/obj/test/fuzz/%.c.o $(BUILD)/libgm_core.a
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(TOOLS_LIBS) -pthread -ldl

$(BUILD)/test/bench/%: $(BUILD)/obj/test/bench/%.c.o $(BUILD)/libgm_core.a $(FAKE_SO)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) -rdynamic -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(BENCH_LIBS_$*) -pthread -ldl
$(BUILD)/test/bench/fill: $(BUILD)/obj/test/bench/fill.c.o $(FAKE_SO)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) -o $@ $^
$(BUILD)/test/bench/trivial.so: test/bench/trivial.c
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) -fPIC -shared -isystem $(CUDA_INC) -o $@ $< -ldl
$(BUILD)/test/bench/bench_heaps: $(BUILD)/libgm_tools.a
BENCH_LIBS_bench_heaps = $(TOOLS_LIBS)

# ---- installation ------------------------------------------------------------------------------
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
SHARE   ?= $(PREFIX)/share
DOCDIR  ?= $(SHARE)/doc/gpumem
# STRIP= leaves the debug information in the files; otherwise it is in .debug beside each file, where gdb looks.
STRIP   ?= $(CROSS)strip
OBJCOPY ?= $(CROSS)objcopy
# The prefix in the file for pkg-config; for a tree that can be moved it is ${pcfiledir}/../.. .
PC_PREFIX ?= $(PREFIX)
define install_binary
	install -m 755 $(BUILD)/$(1) $(DESTDIR)$(2)/$(1)
	$(if $(STRIP),install -d $(DESTDIR)$(2)/.debug
	$(OBJCOPY) --only-keep-debug $(BUILD)/$(1) $(DESTDIR)$(2)/.debug/$(1).debug
	chmod 644 $(DESTDIR)$(2)/.debug/$(1).debug
	$(STRIP) --strip-unneeded $(DESTDIR)$(2)/$(1)
	cd $(DESTDIR)$(2) && $(OBJCOPY) --add-gnu-debuglink=.debug/$(1).debug $(1))
endef
install-binaries: all
	install -d $(DESTDIR)$(LIBDIR) $(DESTDIR)$(PREFIX)/bin
	$(call install_binary,libgpumem.so,$(LIBDIR))
	$(call install_binary,gpumem,$(PREFIX)/bin)
install: install-binaries
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 644 preload/api/gpumem.h $(DESTDIR)$(PREFIX)/include/gpumem.h
	sed -e 's|@PREFIX@|$(PC_PREFIX)|' -e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' -e 's|@VERSION@|$(VERSION)|' \
		preload/api/gpumem.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/gpumem.pc
	install -d $(DESTDIR)$(SHARE)/man/man1 $(DESTDIR)$(SHARE)/man/man7 $(DESTDIR)$(SHARE)/gpumem \
		$(DESTDIR)$(SHARE)/bash-completion/completions $(DESTDIR)$(SHARE)/zsh/site-functions \
		$(DESTDIR)$(SHARE)/fish/vendor_completions.d $(DESTDIR)$(DOCDIR)/docs
	install -m 644 $(BUILD)/man/*.1 $(DESTDIR)$(SHARE)/man/man1
	install -m 644 $(BUILD)/man/*.7 $(DESTDIR)$(SHARE)/man/man7
	install -m 644 $(BUILD)/man/gpumem.bash $(DESTDIR)$(SHARE)/bash-completion/completions/gpumem
	install -m 644 $(BUILD)/man/_gpumem $(DESTDIR)$(SHARE)/zsh/site-functions/_gpumem
	install -m 644 $(BUILD)/man/gpumem.fish $(DESTDIR)$(SHARE)/fish/vendor_completions.d/gpumem.fish
	install -m 755 scripts/preload.sh $(DESTDIR)$(SHARE)/gpumem/preload.sh
	install -m 644 README.md CHANGELOG.md SECURITY.md LICENSE $(DESTDIR)$(DOCDIR)
	install -d $(DESTDIR)$(DOCDIR)/docs/viewer
	install -m 644 $(wildcard docs/*.*) $(DESTDIR)$(DOCDIR)/docs
	install -m 644 docs/viewer/* $(DESTDIR)$(DOCDIR)/docs/viewer
	$(if $(HAVE_LIBDW),,@echo '  not in this gpumem: source lines (Debian: libdw-dev, and libdw1 where it runs)')
	$(if $(HAVE_IBERTY),,@echo '  not in this gpumem: readable names of C++ and Rust (Debian: libiberty-dev)')
	$(if $(HAVE_HTTP),,@echo '  not in this gpumem: gpumem serve (Debian: libmicrohttpd-dev, and libmicrohttpd12 where it runs)')
	@test -s $(VIEW_PAGE) || echo '  not in this gpumem: gpumem view, which takes node to build (Debian: nodejs npm; then scripts/setup.sh demo)'

uninstall:
	rm -f $(DESTDIR)$(LIBDIR)/libgpumem.so $(DESTDIR)$(LIBDIR)/.debug/libgpumem.so.debug \
		$(DESTDIR)$(PREFIX)/bin/gpumem $(DESTDIR)$(PREFIX)/bin/.debug/gpumem.debug \
		$(DESTDIR)$(PREFIX)/include/gpumem.h $(DESTDIR)$(LIBDIR)/pkgconfig/gpumem.pc \
		$(DESTDIR)$(SHARE)/man/man1/gpumem.1 $(DESTDIR)$(SHARE)/man/man1/gpumem-*.1 \
		$(DESTDIR)$(SHARE)/man/man7/libgpumem.7 $(DESTDIR)$(SHARE)/zsh/site-functions/_gpumem \
		$(DESTDIR)$(SHARE)/fish/vendor_completions.d/gpumem.fish \
		$(DESTDIR)$(SHARE)/bash-completion/completions/gpumem $(DESTDIR)$(SHARE)/gpumem/preload.sh
	rm -rf $(DESTDIR)$(DOCDIR)
	-rmdir $(DESTDIR)$(SHARE)/gpumem $(DESTDIR)$(LIBDIR)/.debug $(DESTDIR)$(PREFIX)/bin/.debug 2>/dev/null

# ---- packages ----------------------------------------------------------------------------------
# build/dist gets a tarball with an installer, and packages for Debian, Red Hat and Python. All are made of the files
# that `make install` writes. Missing tools are named.
DIST    := $(BUILD)/dist
MACHINE ?= $(shell uname -m)
TARBALL := gpumem-$(VERSION)-linux-$(MACHINE)
DEBARCH := $(if $(filter aarch64,$(MACHINE)),arm64,amd64)
# Name all missing Debian packages at once, before anything is built.
DIST_MISSING = $(if $(shell command -v dh),,debhelper) $(if $(shell command -v rpmbuild),,rpm) \
	       $(if $(WHEEL_PYTHON),,python3-pip python3-setuptools python3-wheel)
dist-tools:
	@test -z '$(strip $(DIST_MISSING))' || { echo 'make dist: these Debian packages are missing: $(strip $(DIST_MISSING)). dist-tar needs none of them' >&2; exit 1; }
dist: dist-tools dist-tar dist-deb dist-rpm wheel
	$(Q)cp $(BUILD)/wheel/*.whl $(DIST)
	$(Q)cp $(BUILD)/wheel/*.whl $(DIST)/
	$(Q)ls -l $(DIST) | awk 'NF > 8 { print "  " $$5, $$9 }'
dist-tar: all
	$(call say,DIST,$(DIST)/$(TARBALL).tar.gz)
	$(Q)rm -rf $(DIST)/tar && mkdir -p $(DIST)/tar/$(TARBALL)
	$(Q)$(MAKE) -s install DESTDIR=$(CURDIR)/$(DIST)/tar/$(TARBALL) PREFIX= PC_PREFIX='$$$${pcfiledir}/../..'
	$(Q)install -m 755 packaging/install.sh $(DIST)/tar/$(TARBALL)/install.sh
	$(Q)cd $(DIST)/tar && tar --owner=0 --group=0 --sort=name -czf ../$(TARBALL).tar.gz $(TARBALL) && cd .. && rm -rf tar
dist-deb: all
	$(call say,DIST,$(DIST)/gpumem_$(VERSION)-1_$(DEBARCH).deb)
	$(Q)command -v dh >/dev/null || { echo 'make dist-deb: debhelper is missing (Debian: debhelper)' >&2; exit 1; }
	$(Q)rm -rf $(DIST)/deb && mkdir -p $(DIST)/deb/gpumem && cp -r packaging/debian $(DIST)/deb/gpumem/debian
	$(Q)printf 'gpumem (%s-1) unstable; urgency=medium\n\n  * The changes are in CHANGELOG.md.\n\n -- %s  %s\n' '$(VERSION)' \
		"$$(sed -n 's/^Maintainer: //p' packaging/debian/control)" "$$(date -R -r CHANGELOG.md)" >$(DIST)/deb/gpumem/debian/changelog
	$(Q)cd $(DIST)/deb/gpumem && GPUMEM_SOURCE=$(CURDIR) dpkg-buildpackage -b -us -uc -nc -d -a$(DEBARCH) >../log 2>&1 || { tail -n 20 ../log >&2; exit 1; }
	$(Q)mv $(DIST)/deb/*.deb $(DIST)/ && rm -rf $(DIST)/deb
dist-rpm: all
	$(call say,DIST,$(DIST)/gpumem-$(VERSION)-1.$(MACHINE).rpm)
	$(Q)command -v rpmbuild >/dev/null || { echo 'make dist-rpm: rpmbuild is missing (Debian: rpm)' >&2; exit 1; }
	$(Q)rm -rf $(DIST)/rpm && mkdir -p $(DIST)/rpm
	$(Q)rpmbuild -bb --nodeps --quiet --target $(MACHINE) -D '_topdir $(CURDIR)/$(DIST)/rpm' -D 'gpumem_source $(CURDIR)' -D 'gpumem_version $(VERSION)' \
		-D '_libdir %{_prefix}/lib64' packaging/gpumem.spec >$(DIST)/rpm/log 2>&1 || { tail -n 20 $(DIST)/rpm/log >&2; exit 1; }
	$(Q)mv $(DIST)/rpm/RPMS/*/*.rpm $(DIST)/ && rm -rf $(DIST)/rpm

# ---- the Python package ------------------------------------------------------------------------
# One wheel for every Python 3: the package of tools/python with the command, the library and the manual pages. It is
# made without a network, by setuptools and wheel; by Debian's if $(PYTHON) has none. The tag is the newest version of
# glibc that the command and the library need.
WHEEL_PYTHON = $(firstword $(foreach python,$(PYTHON) /usr/bin/python3,$(shell $(python) -c 'import setuptools, wheel, pip' 2>/dev/null && echo $(python))))
WHEEL_GLIBC  = $(shell readelf -VW $(BUILD)/gpumem $(BUILD)/libgpumem.so | sed -n 's/.*Name: GLIBC_\([0-9]*\)\.\([0-9]*\).*/\1_\2/p' | sort -t_ -k1,1n -k2,2n | tail -n 1)
WHEEL_TAG    = manylinux_$(WHEEL_GLIBC)_$(shell $(CC) -dumpmachine | cut -d- -f1)
WHEEL        = $(BUILD)/wheel/source
wheel: all
	@test -n '$(WHEEL_PYTHON)' || { echo 'make wheel needs pip, setuptools and wheel for Python (Debian: python3-pip python3-setuptools python3-wheel)' >&2; exit 1; }
	$(call say,WHEEL,$(WHEEL_TAG))
	$(Q)rm -rf $(BUILD)/wheel && mkdir -p $(BUILD)/wheel && cp -r tools/python $(WHEEL)
	$(Q)install -d $(WHEEL)/gpumem/bin $(WHEEL)/gpumem/lib $(WHEEL)/man
	$(Q)$(MAKE) --no-print-directory install-binaries DESTDIR= PREFIX=$(CURDIR)/$(WHEEL)/gpumem LIBDIR=$(CURDIR)/$(WHEEL)/gpumem/lib >$(BUILD)/wheel/log
	$(Q)cp $(BUILD)/man/*.1 $(BUILD)/man/*.7 $(WHEEL)/man
	$(Q)echo $(VERSION) >$(WHEEL)/VERSION
	$(Q)printf '[bdist_wheel]\nplat_name = %s\n' $(WHEEL_TAG) >$(WHEEL)/setup.cfg
	$(Q)$(WHEEL_PYTHON) -m pip --disable-pip-version-check wheel --no-deps --no-build-isolation --no-index \
		--wheel-dir $(BUILD)/wheel $(WHEEL) >>$(BUILD)/wheel/log 2>&1 || { cat $(BUILD)/wheel/log >&2; exit 1; }
	@ls $(BUILD)/wheel/*.whl

-include $(shell test -d $(BUILD)/obj && find $(sort $(PLAIN)/obj $(BUILD)/obj) $(wildcard $(BUILD)/test) -name '*.d')
