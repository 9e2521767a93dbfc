//! The platforms and their devices. Asking for them starts the drivers: threads appear that a fork does not survive.
//!
//! # Protocol
//!
//! `STARTED_BY` holds the process that first asked a platform anything, 0 before. It is written before the first call, so
//! a child that was forked in the middle sees it as well, and is only compared with the own process: no lock, nothing
//! lazy (H24). `ASKING` is the process one of whose threads asks the platforms now; others of it wait for their turn, since
//! PoCL 3.1 sometimes finds no device while two threads ask at once. What a parent left there is no turn of ours. `SEEN` holds what was last found, leaked, for the doctor, which asks no platform itself.

use crate::config::Settings;
use crate::conv::fault;
use crate::query::{DeviceId, text};
use crate::sys::{self, Api, Library, Raw};
use anyaccel_hal::{Fault, FaultKind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

static STARTED_BY: AtomicU32 = AtomicU32::new(0);
static ASKING: AtomicU32 = AtomicU32::new(0);
static SEEN: AtomicPtr<Vec<PlatformReport>> = AtomicPtr::new(ptr::null_mut());

/// What a platform turned out to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlatformReport {
    pub(crate) name: String,
    /// Its devices in words, each with why it does not count if it does not.
    pub(crate) devices: Vec<String>,
    /// How many of them count.
    pub(crate) counted: usize,
}

/// The devices that count, before the mask.
#[derive(Debug)]
pub(crate) struct Discovery {
    pub(crate) devices: Vec<Found>,
    pub(crate) platforms: usize,
}

/// A device that counts.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) id: DeviceId,
    /// Which platform it belongs to, by the order of the loader.
    pub(crate) platform: usize,
    pub(crate) version: (u32, u32),
    kind: u64,
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Found")
            .field("platform", &self.platform)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// The process that started the platforms, if it is a parent of this one.
pub(crate) fn started_by_parent() -> Option<u32> {
    let by = STARTED_BY.load(Ordering::Acquire);
    (by != 0 && by != std::process::id()).then_some(by)
}

/// The fault of every start in a child of the process that started the platforms.
pub(crate) fn forked(parent: u32) -> Fault {
    Fault::new(FaultKind::Driver, "start")
        .note(format!("OpenCL was started in process {parent} before this one was forked"))
}

/// What was last found in this process.
pub(crate) fn seen() -> Option<&'static Vec<PlatformReport>> {
    // SAFETY: null, or a list that was leaked before it was published.
    unsafe { SEEN.load(Ordering::Acquire).as_ref() }
}

/// The right to ask the platforms, one thread at a time.
struct Turn;

impl Turn {
    fn take() -> Self {
        let me = std::process::id();
        loop {
            let at = ASKING.load(Ordering::Acquire);
            if at != me && ASKING.compare_exchange(at, me, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Self;
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        ASKING.store(0, Ordering::Release);
    }
}

/// Asks every platform. Starts them.
pub(crate) fn discover(library: &'static Library, settings: &Settings) -> Result<Discovery, Fault> {
    if let Some(parent) = started_by_parent() {
        return Err(forked(parent));
    }
    let _turn = Turn::take();
    STARTED_BY.store(std::process::id(), Ordering::Release);
    let api = &library.api;
    let (mut devices, mut reports) = (Vec::new(), Vec::new());
    let platforms = platforms(api)?;
    for (at, &platform) in platforms.iter().enumerate() {
        // SAFETY: C1: platforms are never released. C2, by `text`.
        let name = text(|size, value, needed| unsafe {
            (api.clGetPlatformInfo)(platform, sys::PLATFORM_NAME, size, value, needed)
        });
        let mut report = PlatformReport { name: name.unwrap_or_default(), devices: Vec::new(), counted: 0 };
        let listed = match devices_of(api, platform) {
            Ok(listed) => listed,
            Err(fault) => {
                // One broken driver takes nothing from the others.
                report.devices.push(format!("({fault})"));
                Vec::new()
            }
        };
        for raw in listed {
            let id = DeviceId { api, platform, raw };
            let name = id.text(sys::DEVICE_NAME).unwrap_or_default();
            match examine(id, at, settings.types) {
                Ok(found) => {
                    report.counted += 1;
                    report.devices.push(name);
                    devices.push(found);
                }
                Err(reason) => report.devices.push(format!("{name} ({reason})")),
            }
        }
        reports.push(report);
    }
    // GPUs first, CPUs last; each type in the order of the loader.
    devices.sort_by_key(|found| rank(found.kind));
    if seen() != Some(&reports) {
        SEEN.store(Box::leak(Box::new(reports)), Ordering::Release);
    }
    Ok(Discovery { devices, platforms: platforms.len() })
}

/// Whether a device counts, or why not.
fn examine(id: DeviceId, platform: usize, types: u64) -> Result<Found, String> {
    let kind = id.number(sys::DEVICE_TYPE).unwrap_or(0);
    if kind & types == 0 {
        return Err(format!("a {}, which is not asked for", type_name(kind)));
    }
    if id.number(sys::DEVICE_AVAILABLE) == Some(0) {
        return Err("not available".to_owned());
    }
    let version = id.text(sys::DEVICE_VERSION).unwrap_or_default();
    match parse_version(&version) {
        Some(number) if number >= (2, 0) => Ok(Found { id, platform, version: number, kind }),
        _ => Err(format!("{version:?}, older than OpenCL 2.0")),
    }
}

fn rank(kind: u64) -> usize {
    [sys::DEVICE_TYPE_GPU, sys::DEVICE_TYPE_ACCELERATOR, sys::DEVICE_TYPE_CUSTOM, sys::DEVICE_TYPE_CPU]
        .iter()
        .position(|bit| kind & bit != 0)
        .unwrap_or(4)
}

fn type_name(kind: u64) -> &'static str {
    ["GPU", "accelerator", "custom device", "CPU", "device of no type"][rank(kind)]
}

/// `OpenCL 3.0 and then some` as 3, 0.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let number = text.strip_prefix("OpenCL ")?.split_whitespace().next()?;
    let (major, minor) = number.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn platforms(api: &Api) -> Result<Vec<Raw>, Fault> {
    const CALL: &str = "clGetPlatformIDs";
    let mut count = 0;
    // SAFETY: C2.
    match unsafe { (api.clGetPlatformIDs)(0, ptr::null_mut(), &mut count) } {
        sys::SUCCESS => {}
        sys::PLATFORM_NOT_FOUND_KHR => return Ok(Vec::new()),
        status => return Err(fault(CALL, status)),
    }
    let mut list = vec![ptr::null_mut(); count as usize];
    if count > 0 {
        // SAFETY: C2: the list has room for that many.
        crate::conv::check(CALL, unsafe { (api.clGetPlatformIDs)(count, list.as_mut_ptr(), ptr::null_mut()) })?;
    }
    Ok(list)
}

fn devices_of(api: &Api, platform: Raw) -> Result<Vec<Raw>, Fault> {
    const CALL: &str = "clGetDeviceIDs";
    let mut count = 0;
    // SAFETY: C1, C2.
    match unsafe { (api.clGetDeviceIDs)(platform, sys::DEVICE_TYPE_ALL, 0, ptr::null_mut(), &mut count) } {
        sys::SUCCESS => {}
        sys::DEVICE_NOT_FOUND => return Ok(Vec::new()),
        status => return Err(fault(CALL, status)),
    }
    let mut list = vec![ptr::null_mut(); count as usize];
    if count > 0 {
        // SAFETY: C1, C2: the list has room for that many.
        let status =
            unsafe { (api.clGetDeviceIDs)(platform, sys::DEVICE_TYPE_ALL, count, list.as_mut_ptr(), ptr::null_mut()) };
        crate::conv::check(CALL, status)?;
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_their_text() {
        assert_eq!(parse_version("OpenCL 3.0 PoCL HSTR: pthread"), Some((3, 0)));
        assert_eq!(parse_version("OpenCL 1.2"), Some((1, 2)));
        assert_eq!([parse_version("OpenGL 4.0"), parse_version("OpenCL x.y"), parse_version("")], [None; 3]);
    }

    #[test]
    fn gpus_come_first_and_cpus_last() {
        let kinds = [sys::DEVICE_TYPE_CPU, sys::DEVICE_TYPE_GPU | 1, sys::DEVICE_TYPE_ACCELERATOR];
        assert_eq!(kinds.map(rank), [3, 0, 1]);
        assert_eq!(type_name(0), "device of no type");
    }
}
