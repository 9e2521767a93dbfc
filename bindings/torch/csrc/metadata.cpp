// What programs note on tensors of the device with torch._utils.set_tensor_metadata: names, each true or false. It goes along
// when a tensor is saved and loaded.

#include "device.h"
#include "runtime.h"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <string>
#include <unordered_map>

namespace torch_anyaccel {

namespace {

using Notes = std::unordered_map<std::string, bool>;

struct Metadata final : c10::BackendMeta {
  explicit Metadata(Notes given) : notes(std::move(given)) {}

  c10::intrusive_ptr<c10::BackendMeta> clone(const c10::intrusive_ptr<c10::BackendMeta>&) const override {
    return c10::make_intrusive<Metadata>(notes);
  }

  Notes notes;
};

void get(const at::Tensor& tensor, Notes& into) {
  if (const auto* found = dynamic_cast<Metadata*>(tensor.unsafeGetTensorImpl()->get_backend_meta())) {
    into.insert(found->notes.begin(), found->notes.end()); // beside what PyTorch notes itself
  }
}

void set(const at::Tensor& tensor, Notes& notes) {
  if (!notes.empty()) {
    tensor.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<Metadata>(notes));
  }
}

} // namespace

void register_metadata() {
  torch::jit::TensorBackendMetaRegistry(kDevice, &get, &set);
}

} // namespace torch_anyaccel
