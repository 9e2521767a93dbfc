#pragma once

namespace torch_anyaccel {

// Registers guard and hooks, once.
void register_device();

} // namespace torch_anyaccel
