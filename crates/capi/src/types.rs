//! Numbers and structs of the C API, under their names in C.

use std::ffi::{c_char, c_void};

/// The major version of this API. Another major means other meanings: compare it with anyaccel_api_version() >> 16.
pub const ANYACCEL_API_MAJOR: u32 = 1;
/// The minor version of this API. Minors only add: functions, numbers, fields at the end of structs with struct_size.
pub const ANYACCEL_API_MINOR: u32 = 1;

/// What a function returns: ANYACCEL_OK, or why it did nothing. anyaccel_last_error() has the words.
pub type anyaccel_result = i32;

/// Done.
pub const ANYACCEL_OK: anyaccel_result = 0;
/// An argument that makes no sense: NULL where a pointer is needed, an index out of range, a length that does not fit.
pub const ANYACCEL_ERROR_ARGUMENT: anyaccel_result = 1;
/// A handle or an address that names nothing: never given out, destroyed or freed already, of another kind.
pub const ANYACCEL_ERROR_HANDLE: anyaccel_result = 2;
/// The call can't be made now, for a reason that has no number of its own.
pub const ANYACCEL_ERROR_STATE: anyaccel_result = 3;
/// Device memory ran out. Nothing changed: free something and try again.
pub const ANYACCEL_ERROR_OUT_OF_MEMORY: anyaccel_result = 4;
/// Host memory ran out, pinned or ordinary. Nothing changed.
pub const ANYACCEL_ERROR_OUT_OF_HOST_MEMORY: anyaccel_result = 5;
/// This device can't do that.
pub const ANYACCEL_ERROR_UNSUPPORTED: anyaccel_result = 6;
/// No kind of accelerator has a device here.
pub const ANYACCEL_ERROR_NO_DEVICE: anyaccel_result = 7;
/// ANYACCEL_BACKEND names no backend of this build and of the loaded plugins.
pub const ANYACCEL_ERROR_UNKNOWN_BACKEND: anyaccel_result = 8;
/// An environment variable, allocator settings or a plugin that can't be used.
pub const ANYACCEL_ERROR_SETTINGS: anyaccel_result = 9;
/// The runtime did not start; the driver's words are in the message.
pub const ANYACCEL_ERROR_START: anyaccel_result = 10;
/// The native driver refused.
pub const ANYACCEL_ERROR_DRIVER: anyaccel_result = 11;
/// The device is gone for good.
pub const ANYACCEL_ERROR_DEVICE_LOST: anyaccel_result = 12;
/// The runtime was started before this process was forked, and its kind can't start again: use 'spawn'.
pub const ANYACCEL_ERROR_FORKED: anyaccel_result = 13;
/// A handle or an address from before a fork: make a new one in this process.
pub const ANYACCEL_ERROR_STALE: anyaccel_result = 14;
/// The process is exiting. Nothing was called; what was to be freed goes with the process.
pub const ANYACCEL_ERROR_EXITING: anyaccel_result = 15;
/// Called from inside a host function, where it could wait for itself.
pub const ANYACCEL_ERROR_IN_HOST_FUNCTION: anyaccel_result = 16;
/// What a capture forbids, or a graph that is not in the state that the call needs.
pub const ANYACCEL_ERROR_CAPTURE: anyaccel_result = 17;
/// A host function failed; told once, by the next wait for its stream.
pub const ANYACCEL_ERROR_HOST_FUNCTION: anyaccel_result = 18;
/// A handle of another device than the call needs.
pub const ANYACCEL_ERROR_WRONG_DEVICE: anyaccel_result = 19;
/// A defect of this library: the call was left where it stood.
pub const ANYACCEL_ERROR_INTERNAL: anyaccel_result = 20;

/// Stands for the host where a function takes a device: ordinary or pinned memory.
pub const ANYACCEL_HOST: i32 = -1;
/// Stands for this thread's current device where a function takes a device of its own.
pub const ANYACCEL_CURRENT_DEVICE: i32 = -1;

/// A stream: ANYACCEL_STREAM(device, id), so numbers and c10::Stream convert without a call. Pooled and default streams
/// live as long as the process.
pub type anyaccel_stream = u64;
/// Stands for this thread's current stream, of the device that the call is about or else of the current device.
pub const ANYACCEL_CURRENT_STREAM: anyaccel_stream = 0xffff_ffff_ffff_ffff;
/// An event, until it is destroyed. Never 0.
pub type anyaccel_event = u64;
/// A graph, until it is destroyed. Never 0.
pub type anyaccel_graph = u64;
/// A generator of random numbers: ANYACCEL_DEFAULT_GENERATOR(device), or one that was created, until it is destroyed.
pub type anyaccel_generator = u64;

/// A stream with a native queue of its own, or an error, instead of the next one of the pool.
pub const ANYACCEL_STREAM_RESERVED: u32 = 1;

/// Keep the time of each recording, for anyaccel_event_elapsed().
pub const ANYACCEL_EVENT_TIMING: u32 = 1;
/// Threads that wait for the event sleep instead of spinning.
pub const ANYACCEL_EVENT_BLOCKING: u32 = 2;
/// It can be sent to other processes. Refused by devices that have no such events.
pub const ANYACCEL_EVENT_INTERPROCESS: u32 = 4;

/// The copy returns at once where it can: see anyaccel_copy().
pub const ANYACCEL_COPY_ASYNC: u32 = 1;

/// The host may read and write device memory at its addresses, in stream order: synchronize first.
pub const ANYACCEL_DEVICE_HOST_ADDRESSABLE: u32 = 1;
/// The device shares the host's memory.
pub const ANYACCEL_DEVICE_INTEGRATED: u32 = 2;
/// Memory really is pinned by anyaccel_host_alloc().
pub const ANYACCEL_DEVICE_PINS: u32 = 4;

/// Memory that this API did not give out.
pub const ANYACCEL_POINTER_UNKNOWN: u32 = 0;
/// Memory of a device.
pub const ANYACCEL_POINTER_DEVICE: u32 = 1;
/// Host memory of anyaccel_host_alloc().
pub const ANYACCEL_POINTER_PINNED: u32 = 2;

/// Random bits, for integers.
pub const ANYACCEL_RANDOM_BITS: u32 = 0;
/// Uniform numbers from a on and below b, for floats.
pub const ANYACCEL_RANDOM_UNIFORM: u32 = 1;
/// Normal numbers with the mean a and the standard deviation b, for floats.
pub const ANYACCEL_RANDOM_NORMAL: u32 = 2;
/// Exponentials of normal numbers with the mean a and the standard deviation b, for floats.
pub const ANYACCEL_RANDOM_LOG_NORMAL: u32 = 3;
/// Exponentially distributed numbers with the rate a, for floats.
pub const ANYACCEL_RANDOM_EXPONENTIAL: u32 = 4;
/// The trial of the first success of probability a, from 1 on, for floats and integers.
pub const ANYACCEL_RANDOM_GEOMETRIC: u32 = 5;
/// 1 with the probability a, else 0, for floats, integers and bool.
pub const ANYACCEL_RANDOM_BERNOULLI: u32 = 6;
/// One of `count` integers from `from` on (count 0: 2^64 of them), for floats, integers and bool.
pub const ANYACCEL_RANDOM_INTEGERS: u32 = 7;
/// Integers from 0 to the largest of an integer type, or to the end of those that a float type holds without a gap.
pub const ANYACCEL_RANDOM_WHOLE_NUMBERS: u32 = 8;
/// 0, 1, .. in random order, for integers of 32 and 64 bits, in the portable layout.
pub const ANYACCEL_RANDOM_PERMUTATION: u32 = 9;

/// Which element takes which part of a generator's sequence: the same on every device.
pub const ANYACCEL_LAYOUT_PORTABLE: u32 = 0;
/// As PyTorch's CUDA kernels have it on a device with so many multiprocessors and threads.
pub const ANYACCEL_LAYOUT_TORCH_CUDA: u32 = 1;

/// A capture restricts its own thread; others are free. The default.
pub const ANYACCEL_CAPTURE_DEFAULT: u32 = 0;
/// While it goes on no thread may synchronize with a stream or a device.
pub const ANYACCEL_CAPTURE_GLOBAL: u32 = 1;
/// A capture restricts its own thread.
pub const ANYACCEL_CAPTURE_THREAD_LOCAL: u32 = 2;
/// As ANYACCEL_CAPTURE_THREAD_LOCAL; kept apart for backends that ask their driver.
pub const ANYACCEL_CAPTURE_RELAXED: u32 = 3;

/// The graph is made executable when asked or first replayed, instead of when its capture ends.
pub const ANYACCEL_GRAPH_KEEP: u32 = 1;

/// Nothing is recorded; what was is forgotten.
pub const ANYACCEL_HISTORY_OFF: u32 = 0;
/// Who holds each block, no events.
pub const ANYACCEL_HISTORY_STATE: u32 = 1;
/// Every event.
pub const ANYACCEL_HISTORY_ALL: u32 = 2;

/// Stacks of calls that take memory and of those that give it back, on blocks and events. The default.
pub const ANYACCEL_CONTEXT_ALL: u32 = 0;
/// Stacks of calls that take memory, on blocks and events; the event of a free shows who took the block.
pub const ANYACCEL_CONTEXT_ALLOC: u32 = 1;
/// Stacks of calls that take memory, on blocks alone.
pub const ANYACCEL_CONTEXT_STATE: u32 = 2;
/// No stacks.
pub const ANYACCEL_CONTEXT_NONE: u32 = 3;

/// No stacks: the cheapest recording.
pub const ANYACCEL_STACKS_NONE: u32 = 0;
/// Stacks of native code, as far as there is debug information.
pub const ANYACCEL_STACKS_NATIVE: u32 = 1;
/// Stacks of another language, which the caller tells: anyaccel_history_options.source.
pub const ANYACCEL_STACKS_SOURCE: u32 = 2;

/// Receives text in one or several pieces, during the call that it was given to.
pub type anyaccel_write_text = Option<unsafe extern "C" fn(data: *mut c_void, text: *const c_char, len: usize)>;

/// Is told of a request for device memory that failed, before its caller gets the error: on that thread, without locks. Bytes
/// that the driver does not tell are UINT64_MAX. Nothing can be allocated in it; statistics and snapshots can be taken.
pub type anyaccel_out_of_memory_observer =
    Option<unsafe extern "C" fn(data: *mut c_void, device: i32, requested: u64, total: u64, free: u64)>;

/// What a device is. Set struct_size; text is terminated, and cut where it is too long.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct anyaccel_device_info {
    /// sizeof(anyaccel_device_info).
    pub struct_size: u32,
    /// ANYACCEL_DEVICE_*.
    pub flags: u32,
    /// Its memory in bytes.
    pub memory: u64,
    /// The largest single allocation in bytes.
    pub max_alloc: u64,
    /// What addresses are multiples of, in bytes.
    pub alignment: u64,
    /// The element types that it has: bit n for the one with PyTorch's number n (c10::ScalarType).
    pub dtypes: u64,
    /// Compute units (multiprocessors, cores); 0 if unknown.
    pub cores: u32,
    /// The highest clock in MHz; 0 if unknown.
    pub clock_mhz: u32,
    /// The least urgent priority of streams.
    pub least_priority: i32,
    /// The most urgent priority of streams, at most the least urgent one.
    pub greatest_priority: i32,
    /// Its identity, 0 if it has none.
    pub uuid: [u8; 16],
    /// Its marketing name.
    pub name: [c_char; 256],
    /// Who makes it.
    pub vendor: [c_char; 128],
    /// The version of the native driver.
    pub driver: [c_char; 128],
}

/// What lies at an address. Set struct_size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct anyaccel_pointer_info {
    /// sizeof(anyaccel_pointer_info).
    pub struct_size: u32,
    /// ANYACCEL_POINTER_*.
    pub kind: u32,
    /// The device that has it, or that it was pinned for; ANYACCEL_HOST if unknown.
    pub device: i32,
    /// 0.
    pub reserved: u32,
    /// Where the memory begins; NULL if unknown.
    pub base: *mut c_void,
    /// The bytes that were asked for.
    pub size: u64,
    /// The bytes that are held for it.
    pub capacity: u64,
}

/// A function of the host in the order of a stream. Set struct_size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct anyaccel_host_function {
    /// sizeof(anyaccel_host_function).
    pub struct_size: u32,
    /// 0.
    pub flags: u32,
    /// Called when its turn comes, on a thread of the runtime: once, or at each replay of the graph that it was captured
    /// into. It may block. Every function of this API that could wait is refused in it (ANYACCEL_ERROR_IN_HOST_FUNCTION);
    /// freeing memory is fine. Not NULL.
    pub call: Option<unsafe extern "C" fn(data: *mut c_void)>,
    /// Called once when it will never be called again: after its call, with its graph, when its turn can't come (the device
    /// is lost), and before the function that enqueues it returns an error. May be NULL.
    pub destroy: Option<unsafe extern "C" fn(data: *mut c_void)>,
    /// For the two.
    pub data: *mut c_void,
}

/// A random fill. Set struct_size, and all else to 0 that is not needed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct anyaccel_random {
    /// sizeof(anyaccel_random).
    pub struct_size: u32,
    /// ANYACCEL_RANDOM_*.
    pub distribution: u32,
    /// The element type, by PyTorch's number (c10::ScalarType).
    pub dtype: u32,
    /// ANYACCEL_LAYOUT_*.
    pub layout: u32,
    /// For ANYACCEL_LAYOUT_TORCH_CUDA: the number of multiprocessors.
    pub multiprocessors: u32,
    /// For ANYACCEL_LAYOUT_TORCH_CUDA: the most threads that one runs at a time.
    pub threads_per_multiprocessor: u32,
    /// See ANYACCEL_RANDOM_*.
    pub a: f64,
    /// See ANYACCEL_RANDOM_*.
    pub b: f64,
    /// See ANYACCEL_RANDOM_INTEGERS.
    pub from: i64,
    /// See ANYACCEL_RANDOM_INTEGERS.
    pub count: u64,
}

/// One quantity.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct anyaccel_stat {
    /// Now.
    pub current: i64,
    /// The most since the last reset of peaks.
    pub peak: i64,
    /// All increases since the last reset of the accumulated numbers.
    pub allocated: i64,
    /// All decreases since the last reset of the accumulated numbers.
    pub freed: i64,
}

/// One quantity, by the size of the requests.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct anyaccel_pool_stat {
    /// All requests.
    pub all: anyaccel_stat,
    /// Those of up to 1 MiB.
    pub small: anyaccel_stat,
    /// Larger ones.
    pub large: anyaccel_stat,
}

/// What the cache of a device's memory counts, as torch.cuda.memory_stats has it. Set struct_size. All 0 before the start.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct anyaccel_memory_stats {
    /// sizeof(anyaccel_memory_stats).
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Blocks in the hands of users.
    pub allocation: anyaccel_pool_stat,
    /// Segments taken from the device; growable ones don't count.
    pub segment: anyaccel_pool_stat,
    /// Blocks in the hands of users or still used by a stream.
    pub active: anyaccel_pool_stat,
    /// Free blocks that share their segment with others.
    pub inactive_split: anyaccel_pool_stat,
    /// Bytes of allocation.
    pub allocated_bytes: anyaccel_pool_stat,
    /// Bytes taken from the device, used or not.
    pub reserved_bytes: anyaccel_pool_stat,
    /// Bytes of active.
    pub active_bytes: anyaccel_pool_stat,
    /// Bytes of inactive_split.
    pub inactive_split_bytes: anyaccel_pool_stat,
    /// Bytes that users asked for, of the blocks in active.
    pub requested_bytes: anyaccel_pool_stat,
    /// Blocks of max_split_size or more in the hands of users.
    pub oversize_allocations: anyaccel_stat,
    /// Segments of max_split_size or more.
    pub oversize_segments: anyaccel_stat,
    /// Requests that were tried again after everything unused was given back.
    pub num_alloc_retries: i64,
    /// Requests that failed for lack of memory.
    pub num_ooms: i64,
    /// How often the cache waited for all streams.
    pub num_sync_all_streams: i64,
    /// Segments obtained.
    pub num_device_alloc: i64,
    /// Segments given back.
    pub num_device_free: i64,
    /// Bytes from which on blocks are not split; -1: unlimited.
    pub max_split_size: i64,
}

/// How long calls of one kind took, in microseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct anyaccel_time_stat {
    /// All calls.
    pub total: i64,
    /// The longest call.
    pub max: i64,
    /// The shortest call.
    pub min: i64,
    /// How many calls.
    pub count: i64,
}

/// What the cache of pinned memory counts, as torch.cuda.host_memory_stats has it. Set struct_size.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct anyaccel_host_memory_stats {
    /// sizeof(anyaccel_host_memory_stats).
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Blocks held, used or not.
    pub allocations: anyaccel_stat,
    /// Bytes of allocations.
    pub allocated_bytes: anyaccel_stat,
    /// Blocks handed out and not yet found to be reusable.
    pub active_requests: anyaccel_stat,
    /// Bytes of active_requests.
    pub active_bytes: anyaccel_stat,
    /// Bytes that users asked for, of active_requests.
    pub requested_bytes: anyaccel_stat,
    /// Time in calls that pinned memory.
    pub host_alloc_time: anyaccel_time_stat,
    /// Time in calls that gave memory back.
    pub host_free_time: anyaccel_time_stat,
    /// Blocks obtained.
    pub num_host_alloc: i64,
    /// Blocks given back.
    pub num_host_free: i64,
    /// Requests that were tried again after everything unused was given back.
    pub num_alloc_retries: i64,
    /// Requests that failed for lack of memory.
    pub num_ooms: i64,
}

/// The name of a private pool of device memory. Both 0: none, which stands for a pool of its own where a capture begins.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct anyaccel_pool_id {
    /// The first half.
    pub first: u64,
    /// The second half.
    pub second: u64,
}

/// Names a frame of another language: the code and the place in it, say, as numbers that cost nothing to get and mean nothing to
/// the library. Equal where the frame is the same.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct anyaccel_frame {
    /// The first number.
    pub code: u64,
    /// The second number.
    pub at: u64,
}

/// Is told, while anyaccel_stack_source.resolve runs, what a frame is.
///
/// @param to as it was handed to resolve.
/// @param index which of the frames. Told again, for functions that were inlined: the frame of the caller.
/// @param function its name. NULL: "".
/// @param file NULL: unknown.
/// @param line 0: unknown.
pub type anyaccel_tell_frame = Option<
    unsafe extern "C" fn(to: *mut c_void, index: usize, function: *const c_char, file: *const c_char, line: u32),
>;

/// How another language tells its stacks while a memory history is recorded. Set struct_size. Its functions, and what data points
/// to, live as long as the process, and call no function of this API. They are called without locks of the library, so they may
/// wait, for the lock of an interpreter say. Each different stack and frame is kept once, until the recording ends; names are
/// asked for late, by snapshots.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct anyaccel_stack_source {
    /// sizeof(anyaccel_stack_source).
    pub struct_size: u32,
    /// 0.
    pub flags: u32,
    /// For the functions.
    pub data: *mut c_void,
    /// Writes the frames of the calling thread, innermost first, and returns how many: at most `most`, which is 256, of which
    /// further ones are left out at the outer end; 0 for a thread whose stack is not known. Called by whatever thread takes or gives
    /// back memory, threads of the library too. Not NULL.
    pub capture: Option<unsafe extern "C" fn(data: *mut c_void, frames: *mut anyaccel_frame, most: usize) -> usize>,
    /// A frame that was captured by this thread just now is kept: what it names must not go, nor its numbers come to mean
    /// another, until it is forgotten. May be NULL.
    pub keep: Option<unsafe extern "C" fn(data: *mut c_void, frame: anyaccel_frame)>,
    /// A frame is no longer kept: once for each time that it was. Called by any thread. May be NULL.
    pub forget: Option<unsafe extern "C" fn(data: *mut c_void, frame: anyaccel_frame)>,
    /// Says what `count` kept frames are, by calling `tell` for each, with `to`. Called by the thread that takes a snapshot. Not
    /// NULL.
    pub resolve: Option<
        unsafe extern "C" fn(
            data: *mut c_void,
            frames: *const anyaccel_frame,
            count: usize,
            tell: anyaccel_tell_frame,
            to: *mut c_void,
        ),
    >,
}

/// What a memory history records. Set struct_size, and all else to 0 that is not needed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct anyaccel_history_options {
    /// sizeof(anyaccel_history_options).
    pub struct_size: u32,
    /// ANYACCEL_HISTORY_*.
    pub enabled: u32,
    /// Events that are kept of each device; 0: 2^20.
    pub max_entries: u64,
    /// Not 0: pinned memory too.
    pub pinned: u32,
    /// Not 0: forget what was recorded before.
    pub clear: u32,
    /// ANYACCEL_STACKS_*.
    pub stacks: u32,
    /// 0.
    pub reserved: u32,
    /// ANYACCEL_CONTEXT_*. Since 1.1, as all that follows.
    pub context: u32,
    /// Events that are not kept, a bit for each: 1 alloc, 2 free_requested, 4 free_completed, 8 segment_alloc, 16 segment_free, 32
    /// segment_map, 64 segment_unmap, 128 oom, 256 snapshot, 512 annotate.
    pub skip: u32,
    /// For ANYACCEL_STACKS_SOURCE, else NULL. Read during the call. A source that equals the one before goes on with its stacks;
    /// with another the history begins anew.
    pub source: *const anyaccel_stack_source,
}
