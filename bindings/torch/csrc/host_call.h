// Operators of the device that the CPU computes.
#pragma once

#include "runtime.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace torch_anyaccel {

// Computes `op` on images of its arguments, in the order of the device's current stream, and leaves its results on the
// device. While the stream is captured the computation becomes a node of the graph. `asked` is the operator that errors
// name.
void call_on_host(const c10::OperatorHandle& asked, const c10::OperatorHandle& op, torch::jit::Stack* stack);

// The operator with that name, which PyTorch has.
c10::OperatorHandle find_operator(const char* name, const char* overload);

} // namespace torch_anyaccel
