//! A driver of a plugin.

use super::Plugin;
use super::device::PluginDevice;
use crate::convert;
use crate::fault::call;
use crate::raw;
use crate::text::{self, Buffer};
use anyaccel_hal::{Absence, Check, Device, DeviceInfo, Driver, Fault, FaultKind, Kind, Layer, Probe, Verdict};
use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Devices are at most as many as the face can name.
const MOST_DEVICES: u32 = 1 << 16;

/// A driver that a plugin made, given back when neither it nor its devices are used any more (H25).
pub(crate) struct Handle {
    plugin: Plugin,
    raw: NonNull<raw::Driver>,
}

// SAFETY: H18: a driver's functions may be called on any thread.
unsafe impl Send for Handle {}
// SAFETY: H18, as above, also at the same time.
unsafe impl Sync for Handle {}

impl Handle {
    fn new(plugin: Plugin) -> Result<Self, Fault> {
        let mut driver = ptr::null_mut();
        let Some(create) = plugin.tables().driver.create else { return Err(Fault::unsupported("create")) };
        // SAFETY: a function of the plugin under its type; it writes a pointer, and keeps H22 and H24.
        call("create", |fault| unsafe { create(&raw mut driver, fault) })?;
        match NonNull::new(driver) {
            Some(raw) => Ok(Self { plugin, raw }),
            None => Err(Fault::new(FaultKind::Driver, "create").note("the plugin gave NULL for a driver")),
        }
    }

    pub(crate) fn plugin(&self) -> Plugin {
        self.plugin
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(destroy) = self.plugin.tables().driver.destroy {
            // SAFETY: from create, given back once, and no device of it is open any more: each holds this handle.
            unsafe { destroy(self.raw.as_ptr()) }
        }
    }
}

/// The driver.
pub(crate) struct PluginDriver {
    plugin: Plugin,
    handle: Result<Arc<Handle>, Fault>,
}

impl fmt::Debug for PluginDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginDriver").field("plugin", &self.plugin).finish_non_exhaustive()
    }
}

impl PluginDriver {
    pub(crate) fn new(plugin: Plugin) -> Self {
        Self { plugin, handle: Handle::new(plugin).map(Arc::new) }
    }

    fn found(&self) -> Probe {
        let handle = match &self.handle {
            Ok(handle) => handle,
            Err(fault) => return Probe::absent(missing(Layer::Library, "a driver of the plugin", fault)),
        };
        let (mut subject, mut found, mut expected) = (Buffer::<512>::new(), Buffer::<512>::new(), Buffer::<512>::new());
        let mut probe = raw::Probe {
            struct_size: size_of::<raw::Probe>() as u32,
            visible: 0,
            present: 0,
            present_known: 0,
            started: 0,
            absence: raw::ABSENCE_NONE,
            layer: 0,
            reserved: 0,
            subject: subject.text(),
            found: found.text(),
            expected: expected.text(),
        };
        if let Some(function) = self.plugin.tables().driver.probe {
            // SAFETY: a function of the plugin under its type, on its driver; the struct is valid for the call.
            unsafe { function(handle.raw.as_ptr(), &raw mut probe) }
        }
        // SAFETY: the header asks for as much text as fits.
        let (subject, found, expected) = unsafe {
            (subject.read(probe.subject.length), found.read(probe.found.length), expected.read(probe.expected.length))
        };
        let started = probe.started != 0;
        let present = (probe.present_known != 0).then_some(probe.present);
        if probe.visible > MOST_DEVICES {
            let found = format!("the plugin says {}, there can be {MOST_DEVICES} at most", probe.visible);
            let absence =
                Absence::Missing { layer: Layer::Probe, subject: "a possible number of devices".into(), found };
            return Probe { visible: 0, present: None, absence: Some(absence), started };
        }
        let absence = match probe.absence {
            raw::ABSENCE_MISSING => Some(Absence::Missing { layer: layer(probe.layer), subject, found }),
            raw::ABSENCE_BAD_VARIABLE => Some(Absence::BadVariable {
                name: text::keep(&subject, "a variable"),
                value: found,
                expected: text::keep(&expected, "another value"),
            }),
            raw::ABSENCE_MASKED => Some(Absence::Masked { name: text::keep(&subject, "a variable"), value: found }),
            _ => None,
        };
        Probe { visible: probe.visible, present, absence, started }
    }
}

fn missing(layer: Layer, subject: &str, fault: &Fault) -> Absence {
    Absence::Missing { layer, subject: subject.into(), found: fault.to_string() }
}

fn layer(number: u32) -> Layer {
    match number {
        raw::LAYER_LIBRARY => Layer::Library,
        raw::LAYER_VERSION => Layer::Version,
        raw::LAYER_DEVICE_NODES => Layer::DeviceNodes,
        raw::LAYER_PERMISSIONS => Layer::Permissions,
        raw::LAYER_MASK => Layer::Mask,
        _ => Layer::Probe,
    }
}

impl Driver for PluginDriver {
    fn kind(&self) -> Kind {
        self.plugin.kind()
    }

    fn fork_safe_probe(&self) -> bool {
        self.plugin.fork_safe_probe()
    }

    fn probe(&self) -> Probe {
        self.found()
    }

    fn describe(&self, ordinal: u32) -> Option<DeviceInfo> {
        let handle = self.handle.as_ref().ok()?;
        let describe = self.plugin.tables().driver.describe?;
        // SAFETY: a function of the plugin under its type, on its driver; the struct is valid for the call.
        convert::info(|info| Ok(unsafe { describe(handle.raw.as_ptr(), ordinal, info) } != 0)).ok().flatten()
    }

    fn start(&self) -> Result<u32, Fault> {
        let handle = self.handle.as_ref().map_err(Clone::clone)?;
        let Some(start) = self.plugin.tables().driver.start else { return Err(Fault::unsupported("start")) };
        let mut count = 0;
        // SAFETY: a function of the plugin under its type, on its driver; it writes a number.
        call("start", |fault| unsafe { start(handle.raw.as_ptr(), &raw mut count, fault) })?;
        if count > MOST_DEVICES {
            let note = format!("the plugin says {count} devices, there can be {MOST_DEVICES} at most");
            return Err(Fault::new(FaultKind::Driver, "start").note(note));
        }
        Ok(count)
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, Fault> {
        let handle = self.handle.as_ref().map_err(Clone::clone)?;
        let Some(open) = self.plugin.tables().driver.open else { return Err(Fault::unsupported("open")) };
        let mut device = ptr::null_mut();
        // SAFETY: a function of the plugin under its type, on its driver; it writes a pointer.
        call("open", |fault| unsafe { open(handle.raw.as_ptr(), ordinal, &raw mut device, fault) })?;
        match NonNull::new(device) {
            Some(device) => Ok(Arc::new(PluginDevice::new(Arc::clone(handle), device)?)),
            None => Err(Fault::new(FaultKind::Driver, "open").note("the plugin gave NULL for a device")),
        }
    }

    fn restartable(&self) -> bool {
        self.plugin.restartable()
    }

    fn checks(&self) -> Vec<Check> {
        let (major, minor) = self.plugin.abi();
        let version = self.plugin.version().unwrap_or("without a version of its own");
        let library = self.plugin.path().display().to_string();
        let mut checks = vec![
            Check { layer: Layer::Library, verdict: Verdict::Pass, subject: "plugin".into(), found: library },
            Check {
                layer: Layer::Version,
                verdict: Verdict::Pass,
                subject: version.into(),
                found: format!("ABI {major}.{minor}, this is {}.{}", raw::ABI_MAJOR, raw::ABI_MINOR),
            },
        ];
        let handle = match &self.handle {
            Ok(handle) => handle,
            Err(fault) => {
                let (layer, subject) = (Layer::Library, "a driver of the plugin".into());
                checks.push(Check { layer, verdict: Verdict::Fail, subject, found: fault.to_string() });
                return checks;
            }
        };
        let Some(function) = self.plugin.tables().driver.checks else {
            checks.push(self.counted());
            return checks;
        };
        // SAFETY: a function of the plugin under its type, on its driver; it reports to `reported` while it runs.
        unsafe { function(handle.raw.as_ptr(), (&raw mut checks).cast(), reported) };
        // The plugin's own go among the two above, by their layers.
        checks.sort_by_key(|check| check.layer);
        checks
    }
}

impl PluginDriver {
    /// The last layer, for plugins that report none.
    fn counted(&self) -> Check {
        let (layer, subject) = (Layer::Probe, String::new());
        if !self.fork_safe_probe() {
            let found = "counting would start the plugin".into();
            return Check { layer, verdict: Verdict::NotApplicable, subject, found };
        }
        let (verdict, found) = match self.found() {
            Probe { visible: 0, absence: Some(Absence::Missing { subject, found, .. }), .. } => {
                (Verdict::Fail, format!("{subject}: {found}"))
            }
            Probe { visible: 0, absence: Some(Absence::BadVariable { name, value, expected }), .. } => {
                (Verdict::Fail, format!("{name}='{value}': expected {expected}"))
            }
            Probe { visible: 0, absence: Some(Absence::Masked { name, value }), .. } => {
                (Verdict::Fail, format!("all devices are hidden by {name}='{value}'"))
            }
            Probe { visible: 0, .. } => (Verdict::Fail, "no device".into()),
            Probe { visible: 1, .. } => (Verdict::Pass, "1 device".into()),
            Probe { visible, .. } => (Verdict::Pass, format!("{visible} devices")),
        };
        Check { layer, verdict, subject, found }
    }
}

/// Takes a check down.
unsafe extern "C" fn reported(context: *mut c_void, check: *const raw::Check) {
    crate::fault::contained((), || {
        // SAFETY: the context is the list that `checks` passed, which only this function uses meanwhile; the plugin's
        // struct is valid for this call.
        let (checks, check) = unsafe { (&mut *context.cast::<Vec<Check>>(), &*check) };
        let verdict = match check.verdict {
            raw::VERDICT_PASS => Verdict::Pass,
            raw::VERDICT_WARN => Verdict::Warn,
            raw::VERDICT_FAIL => Verdict::Fail,
            _ => Verdict::NotApplicable,
        };
        // SAFETY: the plugin's text is valid for this call.
        let text = |text| String::from_utf8_lossy(unsafe { text::borrowed(text) }).into_owned();
        let (subject, found) = (text(check.subject), text(check.found));
        checks.push(Check { layer: layer(check.layer), verdict, subject, found });
    });
}
