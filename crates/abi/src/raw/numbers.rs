//! The numbers of the ABI.

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        $($(#[$doc])* pub const $name: u32 = $value;)*

        /// Every number, by its name in C.
        pub const NUMBERS: &[(&str, u64)] = &[
            $((concat!("ANYACCEL_", stringify!($name)), $name as u64),)*
            ("ANYACCEL_NOW", NOW),
            ("ANYACCEL_FOREVER", FOREVER),
        ];
    };
}

/// Instead of a mark in `wait_host`: everything enqueued before the call.
pub const NOW: u64 = u64::MAX;
/// Instead of nanoseconds in `wait_host`: no deadline.
pub const FOREVER: u64 = u64::MAX;

numbers! {
    /// The major version.
    ABI_MAJOR = 1;
    /// The minor version.
    ABI_MINOR = 0;

    /// Success.
    OK = 0;
    /// [`FaultKind::OutOfMemory`](anyaccel_hal::FaultKind::OutOfMemory).
    OUT_OF_MEMORY = 1;
    /// [`FaultKind::Unsupported`](anyaccel_hal::FaultKind::Unsupported).
    UNSUPPORTED = 2;
    /// [`FaultKind::DeviceLost`](anyaccel_hal::FaultKind::DeviceLost).
    DEVICE_LOST = 3;
    /// [`FaultKind::NotReady`](anyaccel_hal::FaultKind::NotReady).
    NOT_READY = 4;
    /// [`FaultKind::Invalid`](anyaccel_hal::FaultKind::Invalid).
    INVALID = 5;
    /// [`FaultKind::Driver`](anyaccel_hal::FaultKind::Driver).
    DRIVER = 6;
    /// Of `wait_host` alone: [`Waited::TimedOut`](anyaccel_hal::Waited::TimedOut).
    TIMED_OUT = 16;

    /// [`Kind::CUDA`](anyaccel_hal::Kind::CUDA).
    KIND_CUDA = 1;
    /// [`Kind::OPENCL`](anyaccel_hal::Kind::OPENCL).
    KIND_OPENCL = 4;
    /// [`Kind::HIP`](anyaccel_hal::Kind::HIP).
    KIND_HIP = 6;
    /// [`Kind::XPU`](anyaccel_hal::Kind::XPU).
    KIND_XPU = 12;
    /// [`Kind::MPS`](anyaccel_hal::Kind::MPS).
    KIND_MPS = 13;
    /// [`Kind::MTIA`](anyaccel_hal::Kind::MTIA).
    KIND_MTIA = 18;
    /// A vendor's own.
    KIND_PRIVATE = 20;
    /// [`Kind::HOST`](anyaccel_hal::Kind::HOST).
    KIND_HOST = 64;
    /// [`Kind::SIM`](anyaccel_hal::Kind::SIM).
    KIND_SIM = 65;

    /// [`Layer::Library`](anyaccel_hal::Layer::Library).
    LAYER_LIBRARY = 1;
    /// [`Layer::Version`](anyaccel_hal::Layer::Version).
    LAYER_VERSION = 2;
    /// [`Layer::DeviceNodes`](anyaccel_hal::Layer::DeviceNodes).
    LAYER_DEVICE_NODES = 3;
    /// [`Layer::Permissions`](anyaccel_hal::Layer::Permissions).
    LAYER_PERMISSIONS = 4;
    /// [`Layer::Mask`](anyaccel_hal::Layer::Mask).
    LAYER_MASK = 5;
    /// [`Layer::Probe`](anyaccel_hal::Layer::Probe).
    LAYER_PROBE = 6;

    /// Nothing is said about why there is no device.
    ABSENCE_NONE = 0;
    /// [`Absence::Missing`](anyaccel_hal::Absence::Missing).
    ABSENCE_MISSING = 1;
    /// [`Absence::BadVariable`](anyaccel_hal::Absence::BadVariable).
    ABSENCE_BAD_VARIABLE = 2;
    /// [`Absence::Masked`](anyaccel_hal::Absence::Masked).
    ABSENCE_MASKED = 3;

    /// [`Verdict::Pass`](anyaccel_hal::Verdict::Pass).
    VERDICT_PASS = 1;
    /// [`Verdict::Warn`](anyaccel_hal::Verdict::Warn).
    VERDICT_WARN = 2;
    /// [`Verdict::Fail`](anyaccel_hal::Verdict::Fail).
    VERDICT_FAIL = 3;
    /// [`Verdict::NotApplicable`](anyaccel_hal::Verdict::NotApplicable).
    VERDICT_NOT_APPLICABLE = 4;

    /// The device has a UUID.
    INFO_UUID = 0x1;
    /// The device has a PCI address.
    INFO_PCI = 0x2;
    /// Copies may name any host memory.
    INFO_HOST_ENDS = 0x4;
    /// [`INFO_INTEGRATED`] counts.
    INFO_INTEGRATED_KNOWN = 0x8;
    /// The device shares the host's memory.
    INFO_INTEGRATED = 0x10;

    /// Patterns of 1 byte.
    FILL_1 = 0x1;
    /// Patterns of 2 bytes.
    FILL_2 = 0x2;
    /// Patterns of 4 bytes.
    FILL_4 = 0x4;
    /// Patterns of 8 bytes.
    FILL_8 = 0x8;
    /// Patterns of 16 bytes.
    FILL_16 = 0x10;

    /// [`End::Device`](anyaccel_hal::End::Device).
    END_DEVICE = 1;
    /// [`End::Pinned`](anyaccel_hal::End::Pinned).
    END_PINNED = 2;
    /// [`End::Host`](anyaccel_hal::End::Host).
    END_HOST = 3;

    /// [`HostStatus::Run`](anyaccel_hal::HostStatus::Run).
    HOST_RUN = 0;
    /// [`HostStatus::Cancelled`](anyaccel_hal::HostStatus::Cancelled).
    HOST_CANCELLED = 1;

    /// [`Arg::Place`](anyaccel_hal::Arg::Place).
    ARG_PLACE = 1;
    /// [`Arg::Bytes`](anyaccel_hal::Arg::Bytes).
    ARG_BYTES = 2;
    /// [`Arg::Local`](anyaccel_hal::Arg::Local).
    ARG_LOCAL = 3;

    /// Memory that others own can be registered.
    PINNED_REGISTER = 0x1;
    /// Pinned memory may be an argument of kernels.
    PINNED_DIRECT = 0x2;

    /// [`Format::Ptx`](anyaccel_hal::Format::Ptx).
    FORMAT_PTX = 1;
    /// [`Format::Cubin`](anyaccel_hal::Format::Cubin).
    FORMAT_CUBIN = 2;
    /// [`Format::SpirV`](anyaccel_hal::Format::SpirV).
    FORMAT_SPIRV = 3;
    /// [`Format::OpenClC`](anyaccel_hal::Format::OpenClC).
    FORMAT_OPENCL_C = 4;
    /// [`Format::Msl`](anyaccel_hal::Format::Msl).
    FORMAT_MSL = 5;
    /// [`Format::HostFn`](anyaccel_hal::Format::HostFn).
    FORMAT_HOST_FN = 6;
    /// [`Format::CudaC`](anyaccel_hal::Format::CudaC).
    FORMAT_CUDA_C = 7;

    /// [`Op::Copy`](anyaccel_hal::Op::Copy).
    OP_COPY = 1;
    /// [`Op::Fill`](anyaccel_hal::Op::Fill).
    OP_FILL = 2;
    /// [`Op::Write`](anyaccel_hal::Op::Write).
    OP_WRITE = 3;
    /// [`Op::HostCall`](anyaccel_hal::Op::HostCall).
    OP_HOST_CALL = 4;
    /// [`Op::Launch`](anyaccel_hal::Op::Launch).
    OP_LAUNCH = 5;

    /// [`CaptureMode::Global`](anyaccel_hal::CaptureMode::Global).
    CAPTURE_GLOBAL = 1;
    /// [`CaptureMode::ThreadLocal`](anyaccel_hal::CaptureMode::ThreadLocal).
    CAPTURE_THREAD_LOCAL = 2;
    /// [`CaptureMode::Relaxed`](anyaccel_hal::CaptureMode::Relaxed).
    CAPTURE_RELAXED = 3;

    /// Streams can be captured.
    GRAPHS_CAPTURE = 0x1;
    /// Lists of nodes can be built.
    GRAPHS_LIST = 0x2;
    /// Functions of the host may be nodes.
    GRAPHS_HOST_CALLS = 0x4;
    /// Copies from and to host memory may be nodes.
    GRAPHS_HOST_COPIES = 0x8;
    /// Nodes can be updated.
    GRAPHS_UPDATE = 0x10;
    /// Replays of one graph follow one another by themselves.
    GRAPHS_ORDERED = 0x20;

    /// [`Telemetry::utilization`](anyaccel_hal::Telemetry::utilization).
    SENSOR_UTILIZATION = 0;
    /// [`Telemetry::memory_usage`](anyaccel_hal::Telemetry::memory_usage).
    SENSOR_MEMORY_USAGE = 1;
    /// [`Telemetry::temperature`](anyaccel_hal::Telemetry::temperature).
    SENSOR_TEMPERATURE = 2;
    /// [`Telemetry::power_draw`](anyaccel_hal::Telemetry::power_draw).
    SENSOR_POWER = 3;
    /// [`Telemetry::clock_rate`](anyaccel_hal::Telemetry::clock_rate).
    SENSOR_CLOCK = 4;

    /// [`WaitMode::Auto`](anyaccel_hal::WaitMode::Auto).
    WAIT_AUTO = 1;
    /// [`WaitMode::Block`](anyaccel_hal::WaitMode::Block).
    WAIT_BLOCK = 2;

    /// Probing starts nothing, whatever it finds.
    FORK_SAFE_PROBE = 0x1;
    /// A new driver works in a forked child.
    RESTARTABLE = 0x2;
}
