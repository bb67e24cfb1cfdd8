/* bad_input.js - a file that cannot be read, with a sentence that says why. */
export class BadInput extends Error {}
