/*
 * browser.mjs - a real browser for the tests of the viewer: Debian's chromium-headless-shell by playwright-core, which
 * lies in tools/viewer/node_modules (scripts/setup.sh installs both). That is Chromium without its own windows, whose
 * pages take a second of CPU for each window that a test opens; chromium itself is used where there is no such shell.
 *
 * Pages are opened from file://, as users do. Every error and every request that would leave the page is remembered.
 */
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../..");
const PLAYWRIGHT = join(ROOT, "tools/viewer/node_modules/playwright-core/index.mjs");
const CHROMIUM = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);

/* Why there is no browser here; "" if there is one. */
export const missing = !CHROMIUM ? "no chromium here" : !existsSync(PLAYWRIGHT) ? "no playwright-core in tools/viewer" : "";

/* A browser, which its caller closes; it is closed, too, if this process is told to end. */
export const launch = async (options = {}) => {
	const { chromium } = await import(pathToFileURL(PLAYWRIGHT));
	const browser = await chromium.launch({
		executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--disable-lcd-text", "--font-render-hinting=none",
			"--force-device-scale-factor=1", "--hide-scrollbars", "--mute-audio", "--no-first-run"], ...options,
	});
	for (const signal of ["SIGTERM", "SIGINT"])
		process.once(signal, () => { browser.close().finally(() => process.exit(1)); });
	return browser;
};

/* Call @use with a browser, which is closed whatever happens. */
export const withBrowser = async (use, options) => {
	const browser = await launch(options);
	try {
		return await use(browser);
	} finally {
		await browser.close();
	}
};

/*
 * A page of @browser that shows @path: { page, errors, requests, close }. Waits for the first picture; @before is called when
 * there is a window, before it is told what to show.
 */
export const openPage = async (browser, path, { hash = "", width = 1280, height = 800, dark = false, wait = true, before } = {}) => {
	const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light" });
	context.setDefaultTimeout(120000);	/* for what hangs, not for a busy machine */
	const page = await context.newPage(), errors = [], requests = [];
	page.on("console", (message) => {
		if (["error", "warning"].includes(message.type()))
			errors.push(message.text());
	});
	page.on("pageerror", (error) => errors.push(String(error)));
	page.on("dialog", (dialog) => { errors.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
	page.on("request", (request) => {
		if (!/^(file|blob|data):/.test(request.url()))
			requests.push(request.url());
	});
	await before?.();
	await page.goto(pathToFileURL(path).href + (hash ? `#${hash}` : ""));
	if (wait)
		await page.waitForFunction(() => globalThis.gpumem?.firstPicture > 0);
	return { page, errors, requests, close: () => context.close() };
};

/*
 * Wait until @browser has nothing else to do. For each window that it opens, Chromium loads pages of its own, for what it
 * shows below the address: half a second of CPU, beside which nothing can be measured on two cores.
 */
export const rest = async (browser) => {
	const session = await browser.newBrowserCDPSession();
	const used = async () => (await session.send("SystemInfo.getProcessInfo")).processInfo.reduce((sum, { cpuTime }) => sum + cpuTime, 0);
	for (let still = 0, before = await used(), looks = 0; still < 3 && looks < 200; looks++) {
		await new Promise((done) => { setTimeout(done, 100); });
		const now = await used();
		still = now - before < 0.01 ? still + 1 : 0;
		before = now;
	}
	await session.detach();
};

/* Wait until nothing moves: no question is under way, no window on its way, and two frames were painted since. */
export const settle = (page) => page.evaluate(async () => {
	const frame = () => new Promise((done) => { requestAnimationFrame(() => requestAnimationFrame(done)); });
	for (let quiet = 0; quiet < 2;) {
		await frame();
		quiet = globalThis.gpumem.asker.waiting.size || globalThis.gpumem.store?.timer ? 0 : quiet + 1;
	}
});

/* The numbers that @get of @page gives, a typed array. As a text: playwright takes half a second for each hundred thousand. */
export const numbersOf = async (page, get) => {
	const text = await page.evaluate(`(${get})().join()`);
	return text ? text.split(",").map(Number) : [];
};
