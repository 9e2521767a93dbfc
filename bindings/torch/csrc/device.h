#pragma once

namespace torch_anyaccel {

// Registers guard and hooks, once.
void register_device();

// Has what is noted on tensors saved with them, once.
void register_metadata();

} // namespace torch_anyaccel
