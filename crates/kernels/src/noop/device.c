/* Nothing. */

KERNEL noop(void) {}
