// PyTorch's threads of backward.
#pragma once

namespace torch_anyaccel {

// Waits until they have let go of what they did last, by giving each something to do that has no Python object. Throws what that
// throws. To be called with the GIL.
void settle_backward();

} // namespace torch_anyaccel
