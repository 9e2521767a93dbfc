"use strict";
class Summary {
  constructor(page) { this.page = page; }
  draw() {}
}
