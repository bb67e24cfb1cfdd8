/*
 * stacks.js - the stacks of a document: their frames and call sites. The rules for call sites are those of
 * tools/show/stacks.c and show.c.
 *
 * Stacks are a tree. A node is a frame, and its parent is the frame that called it. tip has for each stack the node of
 * its innermost frame. Node 0 is no frame.
 */
const PLUMBING = 0, NATIVE = 1, BACKWARD = 2, PYTHON_OTHER = 3, PYTHON_OWN = 4;
/* What a stack allocated. */
export const OF_DEVICE = 1, OF_HOST = 2;

const PLUMBING_NAMES = ["torch::unwind::", "torch::CapturedTraceback::", "torch::cuda::(anonymous namespace)::gather",
	"c10::cuda::CUDACachingAllocator", "_ZN3c104cuda20CUDACachingAllocator", "_ZNK3c104cuda20CUDACachingAllocator",
	"libcudart_static_", "nvtxMem"];
const PLUMBING_MODULES = ["libcudart", "libcuda.", "libgpumem", "libc10_cuda."];

const isPlumbing = (name, module) => PLUMBING_MODULES.some((word) => module.startsWith(word)) ||
	PLUMBING_NAMES.some((word) => name.startsWith(word)) || /^cuda[A-Z]/.test(name);
/* Return PyTorch's name for a step of backward, which runs in a thread without Python; null for other functions. */
const backwardOf = (name) => /^torch::autograd::generated::([^:]{1,200})::apply(?:\(|$)/.exec(name)?.[1] ?? null;
const isInstalled = (file) => /-packages\/|\/lib(64)?\/python3\.|^<|\/tools\/python\/gpumem\//.test(file);
/* Files of Python that only run the program: pytest and its plugins, unittest, runpy, the interpreter's own import. */
const RUNNER = /\/_pytest\/|-packages\/(pytest[/_]|pluggy\/|xdist\/|execnet\/)|\/gpumem\/pytest_plugin\.py|\/lib(64)?\/python3\.[^/]*\/(unittest\/|runpy\.py$)|^<frozen |\/bin\/(pytest|py\.test)$/;

export const baseName = (path) => path.slice(path.lastIndexOf("/") + 1);

/* Frames between the user's code and the allocation: the interpreter's own, and PyTorch's dispatcher. */
const INTERPRETER = /^(python|libpython|libffi\.so|_ctypes\.)/;
const DISPATCHER = /^(void |auto )?(c10::(impl|Dispatcher|KernelFunction|BoxedKernel)|at::(_ops|redispatch)|torch::autograd::(VariableType|THPVariable|ADInplaceOrView)|at::\(anonymous namespace\)::.*wrapper_|pybind11::|_ZNK?3c10(4impl|10Dispatcher)|_ZN2at4_ops|_ZN5torch8autograd(12VariableType|L\d+THPVariable))/;

/* Names of operators, whose letters are not brackets: see operator_length() of fold.c. */
const OPERATOR = /operator(?:\(\)|\[\]|<=>|<<=|>>=|->\*|<<|>>|<=|>=|->|<|>)(?=[(<: ,)>[]|$)/y;

/* Return the place behind the bracket that closes the one at @open in @text; the end if it is not closed. */
const closed = (text, open) => {
	for (let at = open, depth = 0; at < text.length; at++) {
		depth += text[at] === "(" ? 1 : text[at] === ")" ? -1 : 0;
		if (!depth)
			return at + 1;
	}
	return text.length;
};

/* Return a name of C++ without template arguments and parameters. */
export const shorten = (name) => {
	if (name.length < 40 || name[0] === "<" || /:\d+\)$/.test(name))
		return name;
	let short = "", depth = 0;
	for (let i = 0; i < name.length;) {
		const letter = name[i], before = name[i - 1] ?? " ";
		OPERATOR.lastIndex = i;
		const symbol = letter === "o" && !/\w/.test(before) ? OPERATOR.exec(name)?.[0] : undefined;
		if (depth && letter === "(") {
			i = closed(name, i);
			continue;
		}
		if (letter === "<" && !depth++)
			short += "<…>";
		else if (letter === ">" && before !== "-")
			depth = Math.max(0, depth - 1);
		else if (!depth)
			short += symbol ?? letter;
		i += symbol?.length ?? 1;
	}
	return short.replace(/\((?!anonymous)(?:[^()]|\([^()]*\))*\)( const)?$/, (all, _, at) => short.endsWith("operator", at) ? all : "(…)");
};

const HEADERS = /\/usr\/(local\/)?include\/|\/include\/c\+\+\/|\/targets\/(x86_64|sbsa)-linux\/include\/|\/cuda\/include\//;

export const NO_STACK = "(no stack)";

/* FNV-1a. */
const hashOf = (text, hash = 0x811c9dc5) => {
	for (let i = 0; i < text.length; i++)
		hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
	return hash >>> 0;
};

export class Stacks {
	constructor(doc) {
		const { parent, frame, tip, frames } = doc.stacks;
		this.parent = parent;
		this.frameOf = frame;
		this.tip = tip;
		this.frames = frames;
		this.texts = doc.texts;
		const directory = doc.root?.process?.directory;
		this.directory = typeof directory === "string" && directory.length > 1 ? `${directory}/` : null;
		this.count = tip.length;
		this.frameCount = frames.name.length;
		this.labels = new Array(this.frameCount);
		this.sorts = new Uint8Array(this.frameCount);
		for (let f = 0; f < this.frameCount; f++)
			this.sorts[f] = this.sortOf(f);
		this.of = new Uint8Array(this.count);
		this.shared = [];
		this.siteCache = new Int32Array(this.count).fill(-2);
	}

	name(f) { return this.texts[this.frames.name[f]] ?? ""; }
	file(f) { return this.texts[this.frames.file[f]] ?? ""; }
	module(f) { return this.texts[this.frames.module[f]] ?? ""; }
	line(f) { return this.frames.line[f]; }
	python(f) { return this.frames.python[f] === 1; }
	inlined(f) { return this.frames.python[f] === 2; }

	sortOf(f) {
		if (this.python(f))
			return RUNNER.test(this.file(f)) ? PLUMBING : isInstalled(this.file(f)) ? PYTHON_OTHER : PYTHON_OWN;
		return isPlumbing(this.name(f), this.module(f)) || (this.inlined(f) && HEADERS.test(this.file(f))) ? PLUMBING : backwardOf(this.name(f)) ? BACKWARD : NATIVE;
	}

	/* Return the part of the machinery that frame @f belongs to: "interpreter", "allocator", "dispatcher"; "":
	 * none. */
	foldOf(f) {
		if (this.sorts[f] === PLUMBING)
			return this.python(f) ? "interpreter" : "allocator";
		if (this.python(f))
			return "";
		return INTERPRETER.test(this.module(f)) ? "interpreter" : DISPATCHER.test(this.name(f)) ? "dispatcher" : "";
	}

	/* The name of a frame on one line. Files of Python are named from the directory in which the process ran. */
	label(f) {
		return this.labels[f] ??= this.python(f) || this.line(f) > 0 ?
			`${this.name(f)} (${this.python(f) ? this.shortFile(f) : baseName(this.file(f))}:${this.line(f)})` : this.functionLabel(f);
	}

	shortFile(f) {
		const file = this.file(f);
		return this.directory && file.startsWith(this.directory) && file.length > this.directory.length ?
			file.slice(this.directory.length) : file;
	}

	/* The name of a function, with its module, without a line. */
	functionLabel(f) { return `${this.name(f)}${this.module(f) ? ` (${this.module(f)})` : ""}`; }

	/* The name of a frame in flame graphs, as in `gpumem flame`. A native function has one name for all its
	 * lines. */
	flameLabel(f) {
		return this.python(f) ? `${this.name(f)} (${baseName(this.file(f)) || this.file(f)}:${this.line(f)})` : this.name(f);
	}

	/* The frames of stack @id, innermost first. */
	list(id) {
		const found = [];
		for (let n = id > 0 && id < this.count ? this.tip[id] : 0; n; n = this.parent[n])
			found.push(this.frameOf[n]);
		return found;
	}

	best(frames) {
		let best = PLUMBING;
		for (const f of frames)
			if (this.sorts[f] > best)
				best = this.sorts[f];
		return best;
	}

	same(a, b, exact) {
		return a === b || (!exact && this.name(a) === this.name(b) &&
			(this.python(a) ? this.file(a) === this.file(b) : this.module(a) === this.module(b)));
	}

	sharedBy(lists, exact) {
		let shared = Infinity, first = null;
		for (const chosen of lists) {
			first ??= chosen;
			let same = 0;
			while (same < shared && same < first.length && same < chosen.length &&
					this.same(first[same], chosen[same], exact))
				same++;
			shared = Math.min(shared, same);
			if (!shared)
				return 0;
		}
		return shared === Infinity ? 0 : shared;
	}

	/* Return the innermost frames that all stacks @ids share, { frames, sort }. Only stacks with frames of the best
	 * sort count, and only these frames. */
	sharedOf(ids) {
		const all = ids.map((id) => this.list(id)), sorts = all.map((frames) => this.best(frames));
		const sort = sorts.reduce((best, here) => Math.max(best, here), PLUMBING);
		const lists = sort === PLUMBING ? [] : all.filter((_, i) => sorts[i] === sort)
			.map((frames) => frames.filter((f) => this.sorts[f] === sort));
		const isLonger = (shared) => lists.every((frames) => frames.length > shared);
		let shared = this.sharedBy(lists, false);
		if (!isLonger(shared))
			shared = this.sharedBy(lists, true);
		return { frames: isLonger(shared) && shared ? lists[0].slice(0, shared) : [], sort };
	}

	/* Find the innermost frames that all stacks of device memory share. They do not tell callers apart, so they are
	 * no call sites. The same holds for stacks of pinned host memory, and for all of both. @of, by stack: what it
	 * allocated, OF_DEVICE | OF_HOST; 0: nothing. */
	share(of) {
		const ids = [...of.keys()].filter((id) => id > 0 && of[id]);
		this.of = of;
		this.shared = [OF_DEVICE, OF_HOST, OF_DEVICE | OF_HOST].map((whose) => ({ whose, ...this.sharedOf(ids.filter((id) => of[id] & whose)) }));
		this.siteCache.fill(-2);
	}

	/* Return the frame that is the call site of stack @id; -1: there is no stack. */
	site(id) {
		if (!(id > 0 && id < this.count))
			return -1;
		if (this.siteCache[id] !== -2)
			return this.siteCache[id];
		return this.siteCache[id] = this.findSite(id);
	}

	findSite(id) {
		const frames = this.list(id), sort = this.best(frames);
		if (!frames.length)
			return -1;
		if (sort === PLUMBING)
			return frames[0];
		const mine = frames.filter((f) => this.sorts[f] === sort), of = this.of[id];
		let passed = 0;
		for (const shared of this.shared) {
			if (shared.sort !== sort || (of && !(of & shared.whose)))
				continue;
			const here = mine.findIndex((f, i) => i >= shared.frames.length || !this.same(f, shared.frames[i], false));
			passed = Math.max(passed, here < 0 ? mine.length : here);
		}
		return mine[passed] ?? mine.at(-1);
	}

	siteText(id) {
		const f = this.site(id);
		if (f < 0)
			return NO_STACK;
		const step = this.sorts[f] === BACKWARD ? backwardOf(this.name(f)) : null;
		return step ? `${step} (${this.module(f) || "backward"})` : this.label(f);
	}

	/*
	 * Return a name of stack @id that no other stack has, and that is the same in every run: its call site and a
	 * hash of its functions, modules and lines of Python, and of the text @about. Neither depends on inlined
	 * functions, which are known only with debug information: a call site that was inlined is named by the function
	 * that it was inlined into.
	 */
	stackText(id, about) {
		this.keys ??= Uint32Array.from({ length: this.frameCount }, (_, f) =>
			hashOf(`${this.name(f)}\n${this.module(f)}\n${this.python(f) ? `${this.line(f)}\n${this.shortFile(f)}` : 0}`));
		const frames = this.list(id), kept = frames.filter((f) => !this.inlined(f)), site = this.site(id);
		const key = kept.reduce((hash, f) => Math.imul(hash ^ this.keys[f], 0x01000193) >>> 0, hashOf(about));
		const f = frames.slice(frames.indexOf(site)).find((of) => !this.inlined(of)) ?? site;
		const name = f < 0 || this.sorts[site] > NATIVE ? this.siteText(id) : this.functionLabel(f);
		return `${name} #${key.toString(16).padStart(8, "0")}`;
	}

	/* Return the frames of stack @id, innermost first, for the page. */
	lines(id) {
		return this.list(id).map((f) => ({
			name: this.name(f), file: this.file(f), line: this.line(f), module: this.module(f),
			python: this.python(f), site: this.site(id) === f, fold: this.site(id) === f ? "" : this.foldOf(f),
		}));
	}

	/* Find the stacks with a frame called @label, here or in flame graphs. Return a byte by stack. */
	calling(label) {
		return this.having((f) => this.flameLabel(f) === label || this.label(f) === label);
	}

	/* Find the stacks with a frame whose name, label or file passes @test. Return a byte by stack. */
	matching(test) {
		return this.having((f) => test(this.name(f)) || test(this.label(f)) || test(this.file(f)));
	}

	having(test) {
		const frames = new Int8Array(this.frameCount).fill(-1), nodes = new Int8Array(this.parent.length).fill(-1);
		const found = new Uint8Array(this.count);
		nodes[0] = 0;
		for (let n = 1; n < this.parent.length; n++) {
			const f = this.frameOf[n];
			if (frames[f] < 0)
				frames[f] = test(f) ? 1 : 0;
			nodes[n] = nodes[this.parent[n]] === 1 ? 1 : frames[f];
		}
		for (let s = 1; s < this.count; s++)
			found[s] = nodes[this.tip[s]] === 1 ? 1 : 0;
		return found;
	}
}
