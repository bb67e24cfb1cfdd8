/*
 * ask.js - the page's side of the worker: send questions, receive answers, and skip questions that are out of date.
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
	 * Return a function that asks @what with its argument. It does nothing if the argument is the same as last
	 * time. It has one question at a time on its way; of those asked meanwhile, only the last is sent later. @then
	 * gets each answer; if it returns false, the answer was of no use, and the same question may be asked again.
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
