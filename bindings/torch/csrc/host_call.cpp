#include "host_call.h"

#include "generator.h"
#include "image.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

#include <algorithm>

namespace torch_anyaccel {

namespace {

using torch::jit::Stack;

// A tensor of the device that is an argument, and its image.
struct Argument {
  at::Tensor device;
  at::Tensor image;
  bool is_read;
  bool is_written;
};

std::string name_of(const c10::OperatorHandle& op) {
  return c10::toString(op.operator_name());
}

// Whether the argument's contents matter.
bool reads(const c10::OperatorHandle& op, size_t index) {
  static const c10::OperatorName kCopy("aten::copy_", "");
  return !op.schema().arguments()[index].is_out() && !(index == 0 && op.operator_name() == kCopy);
}

// Whether the operator writes to the argument. The schemas of batch normalization don't say so of the running statistics.
bool writes(const c10::OperatorHandle& op, size_t index) {
  const auto& argument = op.schema().arguments()[index];
  if (argument.alias_info() != nullptr) {
    return argument.alias_info()->isWrite();
  }
  const auto& name = op.operator_name().name;
  return (argument.name() == "running_mean" || argument.name() == "running_var") &&
      (name == "aten::native_batch_norm" || name == "aten::batch_norm_update_stats");
}

bool takes_generator(const c10::Argument& argument) {
  static const auto kOptional = c10::OptionalType::create(c10::GeneratorType::get());
  return *argument.real_type() == *kOptional || argument.real_type()->kind() == c10::TypeKind::GeneratorType;
}

// One call: its arguments on the host, and how to compute it, now or at each replay of a graph.
class HostCall {
 public:
  HostCall(const c10::OperatorHandle& asked, const c10::OperatorHandle& op, Stack& stack)
      : asked_(asked), op_(op), stack_(stack), begin_(stack.size() - op.schema().arguments().size()) {}

  void run() {
    refuse_what_cannot_work();
    originals_.assign(stack_.begin() + begin_, stack_.end());
    find_device();
    const c10::OptionalDeviceGuard guard(device_);
    if (device_ && is_capturing(current_stream(device_->index()))) {
      captured_ = true;
      refuse_what_cannot_be_captured();
    }
    replace_arguments();
    if (captured_) {
      capture();
    } else {
      compute();
    }
    return_results();
  }

 private:
  void refuse_what_cannot_work() {
    TORCH_CHECK_NOT_IMPLEMENTED(
        op_.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU),
        name_of(asked_), " is not available for the device ", c10::DeviceTypeName(kDevice, true),
        ": it has no kernel for it, and none for the CPU that could stand in.");
    for (const auto& result : op_.schema().returns()) {
      TORCH_CHECK_NOT_IMPLEMENTED(
          result.alias_info() == nullptr || result.alias_info()->isWrite(),
          name_of(asked_), " is not available for the device ", c10::DeviceTypeName(kDevice, true),
          ": it returns a view, which the CPU can't make of memory of a device.");
    }
  }

  void refuse_what_cannot_be_captured() {
    const bool dynamic =
        op_.hasTag(at::Tag::dynamic_output_shape) || op_.hasTag(at::Tag::data_dependent_output);
    TORCH_CHECK(
        !dynamic, name_of(asked_), " can't be captured into a graph: what it returns depends on contents of memory, which ",
        "are known when the graph is replayed only.");
  }

  // The device of the results, as PyTorch has it: the one that is asked for, else that of the first tensor that is on one.
  void find_device() {
    for (const auto& value : originals_) {
      if (value.isDevice() && value.toDevice().type() == kDevice) {
        const auto index = value.toDevice().has_index() ? value.toDevice().index() : current_device();
        device_ = c10::Device(kDevice, index);
        return;
      }
    }
    for (auto value : originals_) {
      for_tensors(value, [&](const at::Tensor& tensor) {
        if (!device_ && tensor.device().type() == kDevice) {
          device_ = tensor.device();
        }
        return tensor;
      });
    }
  }

  void replace_arguments() {
    const auto& arguments = op_.schema().arguments();
    for (const auto i : c10::irange(arguments.size())) {
      auto value = originals_[i];
      for_tensors(value, [&](const at::Tensor& tensor) {
        note(tensor, reads(op_, i), writes(op_, i));
        return tensor;
      });
    }
    make_images();
    for (const auto i : c10::irange(arguments.size())) {
      auto& value = stack_[begin_ + i];
      for_tensors(value, [&](const at::Tensor& tensor) {
        const auto* argument = argument_of(tensor);
        return argument == nullptr ? tensor : argument->image;
      });
      if (value.isDevice() && value.toDevice().type() == kDevice) {
        value = c10::Device(c10::DeviceType::CPU);
      } else if (device_ && takes_generator(arguments[i])) {
        generator_ = generator_of(value.isNone() ? std::nullopt : value.toOptional<at::Generator>(), device_->index());
        generator_index_ = i;
      }
    }
    for (const auto& argument : arguments_) {
      if (argument.is_read) {
        download(argument.image, argument.device);
      }
    }
    if (generator_.defined()) {
      const auto seed = at::empty_strided({1}, {1}, at::TensorOptions().dtype(at::kLong).device(*device_));
      draw_seed(seed, generator_);
      seed_ = make_image(seed, Room::Pinned);
      download(seed_, seed);
    }
  }

  Argument* argument_of(const at::Tensor& tensor) {
    const auto found = std::find_if(
        arguments_.begin(), arguments_.end(), [&](const Argument& argument) { return argument.device.is_same(tensor); });
    return found == arguments_.end() ? nullptr : &*found;
  }

  void note(const at::Tensor& tensor, bool read, bool written) {
    if (tensor.device().type() != kDevice) {
      return;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        tensor.layout() == at::kStrided && !tensor.is_quantized(), name_of(asked_), " is not available for ",
        tensor.is_quantized() ? "quantized" : "sparse", " tensors of the device ", c10::DeviceTypeName(kDevice, true), ".");
    TORCH_CHECK(
        !captured_ || is_capturing(current_stream(tensor.device().index())), name_of(asked_),
        " can't be captured into a graph: its argument on ", tensor.device(), " takes no part in the capture.");
    if (auto* known = argument_of(tensor)) {
      known->is_read |= read;
      known->is_written |= written;
    } else {
      arguments_.push_back({tensor, at::Tensor(), read, written});
    }
  }

  // Where one is written to, the images of arguments that overlap do so too: the CPU's kernels refuse what has no one result.
  void make_images() {
    const bool apart =
        std::none_of(arguments_.begin(), arguments_.end(), [](const Argument& argument) { return argument.is_written; });
    std::vector<at::Tensor> tensors;
    for (const auto& argument : arguments_) {
      tensors.push_back(argument.device);
    }
    auto images = apart || tensors.size() == 1 ? std::vector<at::Tensor>() : make_overlapping_images(tensors, Room::Pinned);
    for (const auto i : c10::irange(arguments_.size())) {
      auto& argument = arguments_[i];
      argument.image = images.empty() ? make_image(argument.device, Room::Pinned) : images[i];
      if (argument.device.unsafeGetTensorImpl()->is_wrapped_number()) {
        argument.image.unsafeGetTensorImpl()->set_wrapped_number(true);
      }
    }
  }

  void compute() {
    c10::SmallVector<c10::DeviceIndex, 2> waited;
    if (generator_.defined()) {
      wait(current_stream(device_->index()));
      waited.push_back(device_->index());
      stack_[begin_ + generator_index_] = seeded(seed_);
    }
    for (const auto& argument : arguments_) {
      const auto index = argument.device.device().index();
      if (argument.is_read && std::find(waited.begin(), waited.end(), index) == waited.end()) {
        wait(current_stream(index));
        waited.push_back(index);
      }
    }
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
  }

  // In place of a generator of the device, the CPU's kernels take one of theirs, with a seed that was drawn on the device.
  static at::Generator seeded(const at::Tensor& seed) {
    return at::detail::createCPUGenerator(static_cast<uint64_t>(*seed.const_data_ptr<int64_t>()));
  }

  // Tries it out, to learn what the results are like, and computes it at each replay.
  void capture() {
    // Of the caller's own tensors the values at the capture count, as those of numbers do.
    Stack arguments(stack_.begin() + begin_, stack_.end());
    for (const auto i : c10::irange(arguments.size())) {
      if (!writes(op_, i)) {
        for_tensors(arguments[i], [&](const at::Tensor& tensor) { return is_image(tensor) ? tensor : frozen(tensor); });
      }
    }
    try_out(arguments, 0);
    // Results get places that replays write and copies read.
    std::vector<at::Tensor> results;
    for (const auto i : c10::irange(op_.schema().returns().size())) {
      if (op_.schema().returns()[i].alias_info() == nullptr) {
        for_tensors(stack_[first_result() + i], [&](const at::Tensor& tensor) {
          auto place = make_image(tensor, Room::Pinned);
          results.push_back(place);
          return place;
        });
      }
    }
    auto replay = [op = op_, asked = name_of(asked_), arguments, results, seed = seed_, generator_index = generator_index_] {
      const c10::InferenceMode no_grad;
      Stack stack = arguments;
      if (seed.defined()) {
        stack[generator_index] = seeded(seed);
      }
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
      size_t next = 0;
      for (const auto i : c10::irange(op.schema().returns().size())) {
        if (op.schema().returns()[i].alias_info() == nullptr) {
          for_tensors(stack[stack.size() - op.schema().returns().size() + i], [&](const at::Tensor& tensor) {
            auto place = results[next++];
            TORCH_CHECK(
                place.sizes() == tensor.sizes(), asked, " returned a tensor of sizes ", tensor.sizes(),
                " in a replay, and one of sizes ", place.sizes(), " in the capture.");
            place.copy_(tensor);
            return place;
          });
        }
      }
    };
    call_in_order(current_stream(device_->index()), std::move(replay));
  }

  bool is_image(const at::Tensor& tensor) const {
    return std::any_of(
        arguments_.begin(), arguments_.end(), [&](const Argument& argument) { return argument.image.is_same(tensor); });
  }

  static at::Tensor frozen(const at::Tensor& tensor) {
    auto copy = tensor.clone();
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      copy.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return copy;
  }

  // Computes it with images that are full of a number. Some operators refuse zeros, a few ones.
  void try_out(const Stack& arguments, int number) {
    stack_.resize(begin_);
    stack_.insert(stack_.end(), arguments.begin(), arguments.end());
    for (const auto& argument : arguments_) {
      argument.image.fill_(number);
    }
    if (generator_.defined()) {
      stack_[begin_ + generator_index_] = at::detail::createCPUGenerator();
    }
    try {
      op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    } catch (const c10::Error& error) {
      TORCH_CHECK(
          number == 0, name_of(asked_),
          " can't be captured into a graph: the sizes of its results can't be learned from a trial with zeros or ones (", error.what_without_backtrace(), ").");
      try_out(arguments, 1);
    }
  }

  // Puts what `change` makes of each tensor of a value in its place.
  template <typename Change>
  static void for_tensors(c10::IValue& value, Change change) {
    if (value.isTensor() && value.toTensor().defined()) {
      value = change(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> changed;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        changed.push_back(tensor.defined() ? change(tensor) : tensor);
      }
      value = changed;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> changed;
      for (const auto& tensor : value.toOptionalTensorVector()) {
        changed.push_back(tensor && tensor->defined() ? std::make_optional(change(*tensor)) : tensor);
      }
      value = changed;
    }
  }

  size_t first_result() const {
    return stack_.size() - op_.schema().returns().size();
  }

  void return_results() {
    for (const auto& argument : arguments_) {
      if (argument.is_written) {
        if (argument.image.sizes() != argument.device.sizes()) {
          argument.device.resize_(argument.image.sizes());
        }
        write_back(argument.device, argument.image);
      }
    }
    const auto& returns = op_.schema().returns();
    for (const auto i : c10::irange(returns.size())) {
      auto& value = stack_[first_result() + i];
      if (returns[i].alias_info() != nullptr) {
        value = original_of(*returns[i].alias_info());
      } else if (device_) {
        for_tensors(value, [&](const at::Tensor& computed) {
          TORCH_CHECK_NOT_IMPLEMENTED(
              computed.layout() == at::kStrided && !computed.is_quantized(), name_of(asked_),
              " is not available for the device ", c10::DeviceTypeName(kDevice, true),
              ": it returns a sparse or quantized tensor.");
          const auto tensor = computed.resolve_conj().resolve_neg();
          auto result = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(*device_));
          copy_elements(result, tensor);
          return result;
        });
      }
    }
  }

  void write_back(const at::Tensor& to, const at::Tensor& image) {
    if (to.scalar_type() == image.scalar_type() && to.strides() == image.strides()) {
      copy_elements(to, image);
    } else {
      TORCH_CHECK(!captured_, name_of(asked_), " can't be captured into a graph: it changes the strides of an argument.");
      auto same = make_image(to, Room::Pinned);
      same.copy_(image);
      copy_elements(to, same);
    }
  }

  c10::IValue original_of(const c10::AliasInfo& alias) const {
    const auto& arguments = op_.schema().arguments();
    for (const auto i : c10::irange(arguments.size())) {
      if (arguments[i].alias_info() != nullptr && *arguments[i].alias_info() == alias) {
        return originals_[i];
      }
    }
    TORCH_CHECK(false, name_of(asked_), " returns an argument that its schema doesn't have.");
  }

  const c10::OperatorHandle& asked_;
  const c10::OperatorHandle& op_;
  Stack& stack_;
  const size_t begin_;
  Stack originals_;
  std::optional<c10::Device> device_;
  std::vector<Argument> arguments_;
  at::Generator generator_;
  size_t generator_index_ = 0; // among the arguments
  at::Tensor seed_; // what was drawn of it
  bool captured_ = false;
};

void fallback(const c10::OperatorHandle& op, Stack* stack) {
  call_on_host(op, op, stack);
}

void refuse(const c10::OperatorHandle& op, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, name_of(op), " is not available for sparse, quantized or nested tensors of the device ",
      c10::DeviceTypeName(kDevice, true), ".");
}

} // namespace

void call_on_host(const c10::OperatorHandle& asked, const c10::OperatorHandle& op, Stack* stack) {
  HostCall(asked, op, *stack).run();
}

c10::OperatorHandle find_operator(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// What PyTorch has for every device, and better for the CPU: those for every device refuse some strides or this device, compute
// a sum in another order, or round in between.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const auto* name :
       {"native_layer_norm", "native_group_norm", "mode.values", "conj_physical_", "addr", "addr.out", "silu_backward",
        "mish_backward"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

} // namespace torch_anyaccel
