//! Device memory, imports, pinned memory, peers, virtual memory.

use crate::support::{MIB, at, rig, small};
use anyaccel_hal::{End, FaultKind, HostPtr};
use anyaccel_sim::{Capabilities, DeviceConfig, Method, Reuse, SimConfig};

#[test]
fn addresses_and_accounts() {
    let rig = rig(small().each_device(|device| device.max_alloc = 32 * MIB));
    let (a, b) = (rig.d().alloc(100), rig.d().alloc(3 * MIB));
    assert_eq!((a.len, b.len, b.addr - a.addr), (100, 3 * MIB, 2 * MIB));
    assert_eq!(a.addr % rig.devices[0].info().alignment, 0);
    rig.d().free(b.mem).unwrap();
    assert!(rig.d().alloc(MIB).addr > b.addr);
    assert_eq!(rig.sim.used(0), 100 + MIB);
    assert_eq!(rig.sim.segments(0).len(), 2);
    for len in [0, 32 * MIB + 1] {
        assert_eq!(rig.devices[0].alloc(len).map_err(|fault| fault.kind), Err(FaultKind::Invalid));
    }
    assert_eq!(rig.devices[0].alloc(32 * MIB).map(|segment| segment.len), Ok(32 * MIB));
    assert_eq!((rig.sim.calls(Method::Alloc), rig.sim.calls_on(0, Method::Free)), (6, 1));
    rig.clean();

    let low = crate::support::rig(small().each_device(|device| device.reuse = Reuse::LowestFit));
    let (a, b) = (low.d().alloc(MIB), low.d().alloc(MIB));
    low.d().free(a.mem).unwrap();
    let again = low.d().alloc(MIB);
    assert_eq!(again.addr, a.addr);
    assert_ne!(again.mem, a.mem);
    assert!(b.addr > a.addr);
}

#[test]
fn memory_without_contents_moves_nothing() {
    let rig = rig(SimConfig::new().memories([1 << 40]).address_only());
    let (mem, stream) = (rig.d().alloc(1 << 39).mem, rig.d().stream());
    let mut bytes = [3u8; 16];
    rig.d().fill(stream, at(mem, 0), 7, 1 << 39).unwrap();
    let host = End::Host(HostPtr(bytes.as_mut_ptr()));
    rig.d().copy(stream, host, End::Device(at(mem, 0)), 16).unwrap();
    rig.d().sync(stream);
    assert_eq!((bytes, rig.sim.peek(mem, 0, 1)), ([3; 16], None));
    // It takes its time all the same: 1 TB/s.
    assert!(rig.sim.now() >= 549_000_000);
    rig.clean();
}

#[test]
fn imports_alias_what_they_name() {
    let rig = rig(small());
    let (mem, stream) = (rig.d().alloc(64), rig.d().stream());
    let mut theirs = [9u8; 8];
    // SAFETY: the memory lives until the handles are freed; H1.
    unsafe {
        let device = &rig.devices[0];
        assert_eq!(device.native_mem(mem.mem), mem.addr);
        let ours = device.import(mem.addr + 8, 8).unwrap();
        let host = device.import(theirs.as_mut_ptr() as u64, 8).unwrap();
        rig.d().fill(stream, at(mem.mem, 0), 1, 64).unwrap();
        rig.d().write(stream, at(ours.mem, 2), &[5, 6]).unwrap();
        rig.d().copy(stream, End::Device(at(host.mem, 0)), End::Device(at(ours.mem, 0)), 5).unwrap();
        rig.d().sync(stream);
        assert_eq!(rig.sim.peek(mem.mem, 8, 8), Some(vec![1, 1, 5, 6, 1, 1, 1, 1]));
        assert_eq!(theirs, [1, 1, 5, 6, 1, 9, 9, 9]);
        let before = rig.sim.used(0);
        rig.d().free(ours.mem).unwrap();
        rig.d().free(host.mem).unwrap();
        assert_eq!(rig.sim.used(0), before);
        assert!(device.import(mem.addr + 60, 8).is_err());
    }
    assert_eq!(rig.violations().len(), 1);
}

#[test]
fn pinned_memory_is_counted_aligned_and_an_end_of_copies() {
    let rig = rig(small().each_device(|device| device.pinned_memory = 8192));
    let (mem, stream) = (rig.d().alloc(64).mem, rig.d().stream());
    let pinned = rig.devices[0].pinned().unwrap();
    let (block, ptr) = pinned.alloc(100).unwrap();
    assert_eq!((ptr.0 as usize % 4096, rig.sim.pinned_used(0)), (0, 4096));
    assert_eq!(pinned.alloc(4097).map_err(|fault| fault.kind), Err(FaultKind::OutOfMemory));
    // SAFETY: H27: the block is valid; H5: nothing is enqueued that names it.
    unsafe { ptr.0.write_bytes(4, 100) };
    rig.d().copy(stream, End::Device(at(mem, 0)), End::Host(HostPtr(ptr.0.wrapping_add(50))), 10).unwrap();
    rig.d().copy(stream, End::Device(at(mem, 10)), End::Pinned(at(block, 99)), 1).unwrap();
    rig.d().copy(stream, End::Pinned(at(block, 60)), End::Device(at(mem, 0)), 11).unwrap();
    rig.d().sync(stream);
    assert_eq!(rig.sim.peek(mem, 0, 11), Some(vec![4; 11]));
    let mut own = vec![1u8; 100];
    // SAFETY: H1, H5: `own` lives until it is freed, and all copies have ended.
    unsafe {
        let registered = pinned.register(HostPtr(own.as_mut_ptr()), 100).unwrap();
        assert!(pinned.register(HostPtr(own.as_mut_ptr().wrapping_add(99)), 10).is_err());
        rig.d().copy(stream, End::Device(at(mem, 0)), End::Pinned(at(registered, 3)), 1).unwrap();
        rig.d().sync(stream);
        assert_eq!(rig.sim.peek(mem, 0, 1), Some(vec![1]));
        pinned.free(registered).unwrap();
        pinned.free(block).unwrap();
    }
    assert_eq!((rig.sim.pinned_used(0), rig.sim.live(0).pinned), (0, 0));
    rig.clean();
}

#[test]
fn peers_copy_in_the_order_of_the_destinations_stream() {
    let mut lonely = DeviceConfig::new(MIB);
    lonely.capabilities.peers = false;
    let rig = rig(SimConfig::new().devices([DeviceConfig::new(MIB), DeviceConfig::new(MIB), lonely]));
    let (src, dst) = (rig.on(0).alloc(8).mem, rig.on(1).alloc(8).mem);
    let (a, b) = (rig.on(0).stream(), rig.on(1).stream());
    let peers = rig.devices[1].peers().unwrap();
    assert_eq!([0, 1, 2, 3].map(|ordinal| peers.can_access(ordinal)), [true, false, false, false]);
    assert_eq!(peers.limits().reachable, 1);
    assert!(rig.devices[2].peers().is_none());
    rig.on(0).fill(a, at(src, 0), 6, 8).unwrap();
    let mark = rig.on(0).mark(a);
    rig.on(1).wait(b, a, mark).unwrap();
    // SAFETY: H1, H4.
    unsafe { peers.copy(b, at(dst, 0), 0, at(src, 0), 8) }.unwrap();
    assert_eq!(rig.on(1).read(b, at(dst, 0), 8), [6; 8]);
    // SAFETY: H1 is what is being tested.
    let fault = unsafe { peers.copy(b, at(dst, 0), 2, at(src, 0), 8) }.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unsupported);
    rig.clean();
}

#[test]
fn ranges_are_reserved_mapped_and_given_back() {
    let rig = rig(small());
    let stream = rig.d().stream();
    let memory = rig.devices[0].virtual_memory().unwrap();
    assert_eq!(memory.limits().granularity, 2 * MIB);
    assert_eq!(memory.reserve(MIB).map_err(|fault| fault.kind), Err(FaultKind::Invalid));
    let (range, segment) = memory.reserve(72 * MIB).unwrap();
    // SAFETY: H1, H4.
    unsafe {
        memory.map(range, 0, 2 * MIB).unwrap();
        memory.map(range, 2 * MIB, 2 * MIB).unwrap();
        rig.d().fill(stream, at(segment.mem, 0), 3, 4 * MIB).unwrap();
        rig.d().sync(stream);
        assert_eq!(rig.sim.peek(segment.mem, 2 * MIB - 1, 2), Some(vec![3, 3]));
        assert_eq!(memory.map(range, 4 * MIB, 62 * MIB).map_err(|fault| fault.kind), Err(FaultKind::OutOfMemory));
        assert_eq!(memory.map(range, 0, 2 * MIB).map_err(|fault| fault.kind), Err(FaultKind::Invalid));
        memory.unmap(range, 0, 2 * MIB).unwrap();
        assert_eq!(memory.unmap(range, 0, 2 * MIB).map_err(|fault| fault.kind), Err(FaultKind::Invalid));
        memory.map(range, 0, 2 * MIB).unwrap();
        assert_ne!(rig.sim.peek(segment.mem, 0, 1), Some(vec![3]), "mapped again, it is other memory");
        assert_eq!((rig.sim.used(0), rig.sim.live(0).mems), (4 * MIB, 1));
        memory.release(range).unwrap();
    }
    assert_eq!((rig.sim.used(0), rig.sim.live(0).mems), (0, 0));
    rig.clean();
}

#[test]
fn capabilities_can_be_absent() {
    let rig = rig(small().each_device(|device| device.capabilities = Capabilities::NONE));
    let device = &rig.devices[0];
    assert!(device.pinned().is_none() && device.peers().is_none() && device.virtual_memory().is_none());
    assert!(device.kernels().is_none() && device.gates().is_none() && device.telemetry().is_none());
    assert!(device.graphs().is_none() && device.native_events().is_none() && device.builtin(1).is_none());
    // SAFETY: refused.
    let import = unsafe { device.import(1, 1) };
    assert_eq!(import.map_err(|fault| fault.kind), Err(FaultKind::Unsupported));
    let few =
        crate::support::rig(small().each_device(|device| device.fill_patterns = anyaccel_hal::PatternSizes(0b101)));
    let (mem, stream) = (few.d().alloc(64).mem, few.d().stream());
    few.d().pattern(stream, at(mem, 0), &[1; 4], 8).unwrap();
    let fault = few.d().pattern(stream, at(mem, 0), &[1; 8], 8).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unsupported);
}
