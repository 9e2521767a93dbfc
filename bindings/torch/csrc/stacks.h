// Who asked for memory: Python's frames, operators of backward, and C++'s.
#pragma once

#include <anyaccel/anyaccel.h>

namespace torch_anyaccel {

// A source of stacks for memory histories: Python's, or C++'s too.
const anyaccel_stack_source& stack_source(bool with_cpp);

} // namespace torch_anyaccel
