//! Defects of copies, fills, writes and kernels.

use crate::frame::{Defect, locked};
use crate::mutants;
use anyaccel_hal::{
    Arg, DType, Device, End, Fault, FaultKind, HostKernel, HostPtr, Kernel, KernelArg, KernelSource, Launch, Pattern,
    Peers, Place, StreamId, Until, WaitMode, WorkGroup,
};
use anyaccel_kernels::{Builtin, convert, histogram};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

mutants! {
    a_copy_is_put_off: ReorderedCopy on host => "order.within-stream", "programs.two-streams";
    a_copy_is_one_byte_short: ShortCopy on host => "copy.lengths-and-offsets", "copy.all-ends", "copy.big";
    a_big_copy_is_short: ShortBigCopy on host => "copy.big";
    the_source_offset_is_ignored: IgnoredOffset on host => "copy.lengths-and-offsets", "programs.two-streams";
    a_copy_spills_over: LongCopy on host => "copy.lengths-and-offsets";
    host_copies_are_accepted: HostCopies on host => "copy.two-host-ends", "failure.refused-calls-leave-no-trace";
    a_source_is_read_at_the_call: EagerUpload on host => "copy.source-read-in-turn";
    bytes_are_taken_late: LateWrite on host => "write.taken-at-the-call";
    a_write_is_cut: CutWrite on host => "write.lengths";
    a_long_write_is_accepted: LongWrite on host => "write.too-much", "failure.refused-calls-leave-no-trace";
    a_refused_write_is_kept: RefusedWrite on host => "write.too-much";
    the_end_of_a_fill_is_lost: ShortFill on host => "fill.patterns", "fill.big";
    long_patterns_are_cut: HalfPattern on host => "fill.patterns";
    a_pattern_starts_elsewhere: TurnedPattern on host => "fill.patterns", "fill.pattern-starts-at-the-place";
    peers_are_unordered: UnorderedPeers on host => "peers.ordered";
    a_histogram_is_short: ShortHistogram on host => "builtins.histogram";
    a_histogram_overwrites: ClearedHistogram on host => "builtins.histogram-adds";
    a_conversion_truncates: TruncatingConversion on host => "builtins.convert";
    a_conversion_swaps_its_types: SwappedConversion on host => "builtins.convert";
    built_ins_come_and_go: FickleBuiltins on host => "builtins.same-answer";
    the_last_group_is_lost: LostGroup on host => "kernels.every-group-once";
    launches_are_cut_to_the_limits: CutLaunch on host => "kernels.beyond-limits";
    places_of_kernels_are_ignored: IgnoredPlace on host => "kernels.arguments";
}

/// A copy within a device is enqueued with the next call on its stream.
#[derive(Default)]
struct ReorderedCopy(Mutex<HashMap<StreamId, (End, End, u64)>>);

impl ReorderedCopy {
    fn flush(&self, good: &dyn Device, stream: StreamId) -> Result<(), Fault> {
        match locked(&self.0).remove(&stream) {
            // SAFETY: the call that was put off, before any mark behind it.
            Some((dst, src, len)) => unsafe { good.copy(stream, dst, src, len) },
            None => Ok(()),
        }
    }
}

impl Defect for ReorderedCopy {
    unsafe fn copy(&self, good: &dyn Device, stream: StreamId, dst: End, src: End, len: u64) -> Result<(), Fault> {
        if let (End::Device(_), End::Device(_)) = (dst, src) {
            self.flush(good, stream)?;
            locked(&self.0).insert(stream, (dst, src, len));
            return Ok(());
        }
        self.flush(good, stream)?;
        // SAFETY: forwarded.
        unsafe { good.copy(stream, dst, src, len) }
    }

    unsafe fn fill(&self, good: &dyn Device, stream: StreamId, dst: Place, it: Pattern, len: u64) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { good.fill(stream, dst, it, len) }?;
        self.flush(good, stream)
    }

    unsafe fn mark(&self, good: &dyn Device, stream: StreamId) -> Result<anyaccel_hal::Mark, Fault> {
        self.flush(good, stream)?;
        // SAFETY: forwarded.
        unsafe { good.mark(stream) }
    }

    unsafe fn wait_host(
        &self,
        good: &dyn Device,
        stream: StreamId,
        until: Until,
        deadline: Option<std::time::Instant>,
        mode: WaitMode,
    ) -> Result<anyaccel_hal::Waited, Fault> {
        self.flush(good, stream)?;
        // SAFETY: forwarded.
        unsafe { good.wait_host(stream, until, deadline, mode) }
    }
}

macro_rules! copy {
    ($defect:ident, |$self:ident, $good:ident, $stream:ident, $dst:ident, $src:ident, $len:ident| $body:expr) => {
        impl Defect for $defect {
            unsafe fn copy(
                &$self,
                $good: &dyn Device,
                $stream: StreamId,
                $dst: End,
                $src: End,
                $len: u64,
            ) -> Result<(), Fault> {
                $body
            }
        }
    };
}

/// Enqueues nothing for no bytes, which the contract forbids to ask for.
unsafe fn some(good: &dyn Device, stream: StreamId, dst: End, src: End, len: u64) -> Result<(), Fault> {
    if len == 0 {
        return Ok(());
    }
    // SAFETY: forwarded.
    unsafe { good.copy(stream, dst, src, len) }
}

#[derive(Default)]
struct ShortCopy;

copy!(ShortCopy, |self, good, stream, dst, src, len| {
    // SAFETY: a part of what was asked.
    unsafe { some(good, stream, dst, src, len - 1) }
});

#[derive(Default)]
struct ShortBigCopy;

copy!(ShortBigCopy, |self, good, stream, dst, src, len| {
    // SAFETY: a part of what was asked.
    unsafe { some(good, stream, dst, src, if len > 16 << 20 { len - 1 } else { len }) }
});

#[derive(Default)]
struct IgnoredOffset;

copy!(IgnoredOffset, |self, good, stream, dst, src, len| {
    let src = match (dst, src) {
        // An end that would overlap the other stays as it is.
        (End::Device(dst), End::Device(src)) if dst.mem != src.mem => End::Device(Place { offset: 0, ..src }),
        (_, src) => src,
    };
    // SAFETY: the memory holds that many bytes from its start too.
    unsafe { good.copy(stream, dst, src, len) }
});

/// Eight bytes more where the case has left room behind.
#[derive(Default)]
struct LongCopy;

copy!(LongCopy, |self, good, stream, dst, src, len| {
    // SAFETY: forwarded.
    unsafe { good.copy(stream, dst, src, len) }?;
    match (dst, src) {
        (End::Device(dst), End::Device(_)) => {
            // SAFETY: the case that this runs on leaves eight bytes behind each destination within a device.
            unsafe { good.write(stream, dst.add(len), &[0xBB; 8]) }
        }
        _ => Ok(()),
    }
});

#[derive(Default)]
struct HostCopies;

copy!(HostCopies, |self, good, stream, dst, src, len| match (dst, src) {
    (End::Host(_) | End::Pinned(_), End::Host(_) | End::Pinned(_)) => Ok(()),
    // SAFETY: forwarded.
    _ => unsafe { good.copy(stream, dst, src, len) },
});

/// Uploads jump the queue, by a stream of their own.
#[derive(Default)]
struct EagerUpload;

copy!(EagerUpload, |self, good, stream, dst, src, len| {
    let (End::Device(_), End::Host(_) | End::Pinned(_)) = (dst, src) else {
        // SAFETY: forwarded.
        return unsafe { good.copy(stream, dst, src, len) };
    };
    let own = good.create_stream(0)?;
    // SAFETY: forwarded; the stream was just made, and its work has ended before it goes.
    unsafe {
        good.copy(own, dst, src, len)?;
        let _ended = good.wait_host(own, Until::Now, None, WaitMode::Auto)?;
        good.destroy_stream(own)
    }
});

macro_rules! write {
    ($defect:ident, |$self:ident, $good:ident, $stream:ident, $dst:ident, $bytes:ident| $body:expr) => {
        impl Defect for $defect {
            unsafe fn write(
                &$self,
                $good: &dyn Device,
                $stream: StreamId,
                $dst: Place,
                $bytes: &[u8],
            ) -> Result<(), Fault> {
                $body
            }
        }
    };
}

/// The bytes are copied from where they lie when the turn of the write comes.
#[derive(Default)]
struct LateWrite;

write!(LateWrite, |self, good, stream, dst, bytes| {
    let src = End::Host(HostPtr(bytes.as_ptr().cast_mut()));
    // SAFETY: only reads; the case that this runs on keeps the bytes until the stream has ended, and changes them.
    unsafe { good.copy(stream, End::Device(dst), src, bytes.len() as u64) }
});

#[derive(Default)]
struct CutWrite;

write!(CutWrite, |self, good, stream, dst, bytes| {
    // SAFETY: a part of what was asked.
    unsafe { good.write(stream, dst, &bytes[..bytes.len().min(32)]) }
});

#[derive(Default)]
struct LongWrite;

write!(LongWrite, |self, good, stream, dst, bytes| {
    bytes.chunks(64).enumerate().try_for_each(|(at, piece)| {
        // SAFETY: what was asked, in pieces.
        unsafe { good.write(stream, dst.add(64 * at as u64), piece) }
    })
});

/// A refused write is remembered, and done in place of the next one.
#[derive(Default)]
struct RefusedWrite(Mutex<Option<Vec<u8>>>);

write!(RefusedWrite, |self, good, stream, dst, bytes| {
    let kept = locked(&self.0).take();
    if bytes.len() > 64 {
        *locked(&self.0) = Some(bytes[..64].to_vec());
    }
    // SAFETY: forwarded; what was kept is as long as a write may be, on a case that has room for it.
    unsafe { good.write(stream, dst, kept.as_deref().unwrap_or(bytes)) }
});

macro_rules! fill {
    ($defect:ident, |$self:ident, $good:ident, $stream:ident, $dst:ident, $pattern:ident, $len:ident| $body:expr) => {
        impl Defect for $defect {
            unsafe fn fill(
                &$self,
                $good: &dyn Device,
                $stream: StreamId,
                $dst: Place,
                $pattern: Pattern,
                $len: u64,
            ) -> Result<(), Fault> {
                $body
            }
        }
    };
}

#[derive(Default)]
struct ShortFill;

fill!(ShortFill, |self, good, stream, dst, pattern, len| {
    let size = pattern.bytes().len() as u64;
    // SAFETY: a part of what was asked; nothing is enqueued for no bytes.
    if len == size { Ok(()) } else { unsafe { good.fill(stream, dst, pattern, len - size) } }
});

#[derive(Default)]
struct HalfPattern;

fill!(HalfPattern, |self, good, stream, dst, pattern, len| {
    let bytes = pattern.bytes();
    let half = if bytes.len() == 16 { Pattern::new(&bytes[..8]) } else { None };
    // SAFETY: forwarded.
    unsafe { good.fill(stream, dst, half.unwrap_or(pattern), len) }
});

/// Patterns start where 32 bytes of the memory start.
#[derive(Default)]
struct TurnedPattern;

fill!(TurnedPattern, |self, good, stream, dst, pattern, len| {
    let mut bytes = pattern.bytes().to_vec();
    if !dst.offset.is_multiple_of(32) {
        bytes.rotate_left(1);
    }
    // SAFETY: forwarded.
    unsafe { good.fill(stream, dst, Pattern::new(&bytes).unwrap_or(pattern), len) }
});

/// Copies between devices run on a stream of their own, at once.
#[derive(Default)]
struct UnorderedPeers;

impl Defect for UnorderedPeers {
    unsafe fn peer_copy(
        &self,
        (good, peers): (&dyn Device, &dyn Peers),
        _: StreamId,
        dst: Place,
        (from, src): (u32, Place),
        len: u64,
    ) -> Result<(), Fault> {
        let own = good.create_stream(0)?;
        // SAFETY: forwarded; the stream was just made, and its work has ended before it goes.
        unsafe {
            peers.copy(own, dst, from, src, len)?;
            let _ended = good.wait_host(own, Until::Now, None, WaitMode::Auto)?;
            good.destroy_stream(own)
        }
    }
}

macro_rules! launch {
    ($defect:ident, |$self:ident, $good:ident, $stream:ident, $kernel:ident, $launch:ident, $args:ident| $body:expr) => {
        impl Defect for $defect {
            unsafe fn launch(
                &$self,
                $good: &dyn Device,
                $stream: StreamId,
                $kernel: Kernel,
                $launch: Launch,
                $args: &[Arg<'_>],
            ) -> Result<(), Fault> {
                $body
            }
        }
    };
}

fn is(good: &dyn Device, kernel: Kernel, builtin: Builtin) -> bool {
    good.builtin(builtin.number()) == Some(kernel)
}

#[derive(Default)]
struct ShortHistogram;

launch!(ShortHistogram, |self, good, stream, kernel, launch, args| {
    let mut args = args.to_vec();
    let short = args.iter().find_map(|arg| match arg {
        Arg::Bytes(params) => histogram::Params::from_bytes(params).ok(),
        _ => None,
    });
    let params = short.map(|params| histogram::Params::new(params.len - 1).to_bytes());
    if let (true, Some(params), Some(last)) = (is(good, kernel, Builtin::Histogram), &params, args.last_mut()) {
        *last = Arg::Bytes(params);
    }
    // SAFETY: a part of what was asked.
    unsafe { good.launch(stream, kernel, launch, &args) }
});

#[derive(Default)]
struct ClearedHistogram;

launch!(ClearedHistogram, |self, good, stream, kernel, launch, args| {
    if let (true, Some(&Arg::Place { place, len })) = (is(good, kernel, Builtin::Histogram), args.first()) {
        // SAFETY: the counts are the launch's to write.
        unsafe { good.fill(stream, place, Pattern::byte(0), len) }?;
    }
    // SAFETY: forwarded.
    unsafe { good.launch(stream, kernel, launch, args) }
});

/// float32 becomes bfloat16 by leaving out the lower half.
#[derive(Default)]
struct TruncatingConversion;

fn upper_halves(group: &WorkGroup, args: &[KernelArg]) {
    if let ([dst, src, ..], 0) = (args, group.index[0]) {
        for at in 0..(dst.len / 2).min(src.len / 4) as usize {
            // SAFETY: H15, both places are that long.
            unsafe {
                let upper = src.ptr.wrapping_add(4 * at + 2).cast::<[u8; 2]>().read_unaligned();
                dst.ptr.wrapping_add(2 * at).cast::<[u8; 2]>().write_unaligned(upper);
            }
        }
    }
}

launch!(TruncatingConversion, |self, good, stream, kernel, launch, args| {
    let to_bf16 = args.iter().any(|arg| match arg {
        Arg::Bytes(params) => convert::Params::from_bytes(params)
            .is_ok_and(|params| params.src_dtype() == Ok(DType::F32) && params.dst_dtype() == Ok(DType::Bf16)),
        _ => false,
    });
    match good.kernels() {
        Some(kernels) if to_bf16 && is(good, kernel, Builtin::Convert) => {
            // SAFETY: the arguments are those of a conversion between these types.
            unsafe {
                let truncate = kernels.load(KernelSource::Host(HostKernel::new(upper_halves)))?;
                good.launch(stream, truncate, launch, args)?;
                let _ended = good.wait_host(stream, Until::Now, None, WaitMode::Auto)?;
                kernels.unload(truncate);
            }
            Ok(())
        }
        // SAFETY: forwarded.
        _ => unsafe { good.launch(stream, kernel, launch, args) },
    }
});

/// int32 is taken for float32, and the other way round.
#[derive(Default)]
struct SwappedConversion;

launch!(SwappedConversion, |self, good, stream, kernel, launch, args| {
    let swap = |dtype| match dtype {
        Ok(DType::I32) => Ok(DType::F32),
        Ok(DType::F32) => Ok(DType::I32),
        other => other,
    };
    let mut args = args.to_vec();
    let swapped = args.iter().find_map(|arg| match arg {
        Arg::Bytes(bytes) => {
            let params = convert::Params::from_bytes(bytes).ok()?;
            let (dst, src) = (params.dst_dtype().ok()?, swap(params.src_dtype()).ok()?);
            Some(convert::Params::new(dst, src, params.count).to_bytes())
        }
        _ => None,
    });
    if let (true, Some(params), Some(last)) = (is(good, kernel, Builtin::Convert), &swapped, args.last_mut()) {
        *last = Arg::Bytes(params);
    }
    // SAFETY: the types have the same size.
    unsafe { good.launch(stream, kernel, launch, &args) }
});

#[derive(Default)]
struct FickleBuiltins(AtomicU32);

impl Defect for FickleBuiltins {
    fn builtin(&self, good: &dyn Device, number: u32) -> Option<Kernel> {
        let again = self.0.fetch_add(1, Ordering::Relaxed) >= 40;
        good.builtin(number).filter(|_| !again)
    }
}

#[derive(Default)]
struct LostGroup;

launch!(LostGroup, |self, good, stream, kernel, mut_launch, args| {
    let mut launch = mut_launch;
    if launch.groups[2] > 1 {
        launch.groups[2] -= 1;
    }
    // SAFETY: a part of what was asked.
    unsafe { good.launch(stream, kernel, launch, args) }
});

#[derive(Default)]
struct CutLaunch;

launch!(CutLaunch, |self, good, stream, kernel, launch, args| {
    // SAFETY: forwarded.
    match unsafe { good.launch(stream, kernel, launch, args) } {
        Err(fault) if fault.kind == FaultKind::Invalid && launch.shared == 0 => {
            // SAFETY: a part of what was asked.
            unsafe { good.launch(stream, kernel, Launch::linear(1, 1), args) }
        }
        other => other,
    }
});

#[derive(Default)]
struct IgnoredPlace;

launch!(IgnoredPlace, |self, good, stream, kernel, launch, args| {
    let args: Vec<Arg<'_>> = args
        .iter()
        .map(|arg| match *arg {
            Arg::Place { place, len } => Arg::Place { place: Place { offset: 0, ..place }, len },
            other => other,
        })
        .collect();
    // SAFETY: the memory holds that many bytes from its start too.
    unsafe { good.launch(stream, kernel, launch, &args) }
});
