/*
 * ask.js - the page's end of the worker: questions, answers, and asking only for the latest of what changes quickly.
 */
export class Asker {
	constructor(text) {
		this.worker = new Worker(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
		this.waiting = new Map();
		this.next = 1;
		this.worker.onmessage = ({ data: { id, result, error } }) => {
			const { resolve, reject } = this.waiting.get(id);
			this.waiting.delete(id);
			if (error === undefined)
				resolve(result);
			else
				reject(new Error(error));
		};
		this.worker.onerror = (event) => {
			for (const { reject } of this.waiting.values())
				reject(new Error(event.message || "the page's worker could not be started"));
			this.waiting.clear();
		};
	}

	ask(what, args = {}, transfer = []) {
		const id = this.next++;
		return new Promise((resolve, reject) => {
			this.waiting.set(id, { resolve, reject });
			this.worker.postMessage({ id, what, args }, transfer);
		});
	}

	/*
	 * A function that asks @what with what it is called with, if that is another than it was asked with last; one question
	 * at a time: what is asked meanwhile is forgotten but for the last. @then gets each answer; one that it returns false for
	 * was of no use when it came, and may be asked for again.
	 */
	latest(what, then, fail) {
		let busy = false, next = null, asked = "";
		const ask = async (args) => {
			let answered = false;

			busy = true;
			try {
				answered = then(await this.ask(what, args), args) !== false;
			} catch (error) {
				fail(error);
			}
			busy = false;
			if (next) {
				const more = next;
				next = null;
				ask(more);
			} else if (!answered) {
				asked = "";
			}
		};
		return (args) => {
			const key = JSON.stringify(args);
			if (key === asked)
				return;
			asked = key;
			if (busy)
				next = args;
			else
				ask(args);
		};
	}
}
