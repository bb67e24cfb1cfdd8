/*
 * incoming.js - hand the snapshots in the page to the worker while the browser still reads the page. The text of a
 * script arrives in pieces.
 */
export class Incoming {
	/* @send(number, text) gets a part of snapshot @number, a multiple of four letters long. */
	constructor(send) {
		this.send = send;
		this.number = 0;
		this.text = "";		/* not sent yet */
		this.node = this.offset = 0;
		this.observer = new MutationObserver(() => this.take());
		this.observer.observe(document.body, { childList: true, subtree: true, characterData: true });
	}

	/* Read the text that has arrived since the last call. The last piece may still grow. */
	read({ childNodes }) {
		for (; this.node < childNodes.length; this.node++, this.offset = 0) {
			const { data } = childNodes[this.node];
			this.text += data.slice(this.offset);
			this.offset = data.length;
			if (this.node === childNodes.length - 1)
				return;
		}
	}

	take() {
		const script = document.querySelector("script.snapshot");
		if (!script)
			return;
		this.read(script);
		const whole = this.text.length & ~3;
		if (whole >= 1 << 16) {
			this.send(this.number, this.text.slice(0, whole));
			this.text = this.text.slice(whole);
		}
	}

	/* Call when the page is complete. Yield the rest of each snapshot as { number, text }. */
	*rest() {
		this.observer.disconnect();
		for (let script; (script = document.querySelector("script.snapshot")); script.remove()) {
			this.read(script);
			yield { number: this.number, text: this.text };
			this.number++;
			this.text = "";
			this.node = this.offset = 0;
		}
	}
}
