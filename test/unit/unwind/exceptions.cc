// exceptions.cc - C++ exceptions in flight: calls back from a destructor that an exception runs,
// from a catch block, and from the frames above a throw that is caught further out.
extern "C" int exceptions_run(void (*callback)(void *), void *arg);

namespace {

struct Caller {
	void (*callback)(void *);
	void *arg;
	~Caller() { callback(arg); }
};

__attribute__((noinline)) void thrower(int depth, void (*callback)(void *), void *arg)
{
	Caller caller = { callback, arg };

	if (depth == 0)
		throw 42;
	thrower(depth - 1, callback, arg);
}

__attribute__((noinline)) int catcher(void (*callback)(void *), void *arg)
{
	try {
		thrower(5, callback, arg);
	} catch (int value) {
		callback(arg);
		if (value != 42)
			throw;
		try {
			thrower(2, callback, arg);
		} catch (...) {
			callback(arg);
			return value;
		}
	}
	return 0;
}

} // namespace

int exceptions_run(void (*callback)(void *), void *arg)
{
	return catcher(callback, arg);
}
