#pragma once

#include <string>

namespace torch_anyaccel {

// Registers graphs under the device's upper-case name: after it was renamed. Does nothing in a PyTorch without
// torch.accelerator.Graph.
void register_graph(const std::string& device);

} // namespace torch_anyaccel
