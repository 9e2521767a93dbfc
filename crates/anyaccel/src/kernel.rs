//! Kernels of the user's own.

use crate::buffer::BufferSlice;
use crate::device::{Device, DeviceArg};
use crate::error::{Error, Result};
use crate::local;
use crate::port::{LaunchPart, Loaded};
use crate::runtime::Runtime;
use crate::stream::Stream;
use anyaccel_hal::{Format, HostKernel, KernelArg, KernelSource, Launch, WorkGroup};
use std::fmt;
use std::sync::Arc;

/// A kernel loaded on a device. A handle; unloaded when the last one is gone and its launches have ended.
#[derive(Clone)]
pub struct Kernel {
    runtime: Runtime,
    loaded: Arc<Loaded>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("device", &self.device()).finish_non_exhaustive()
    }
}

impl Kernel {
    /// The device that it is loaded on.
    pub fn device(&self) -> Device {
        self.loaded.port.device
    }
}

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum LaunchArg<'a> {
    /// Device memory.
    Buffer(BufferSlice<'a>),
    /// A value, taken at the launch.
    Bytes(&'a [u8]),
    /// Group-local memory of that many bytes.
    Local(usize),
}

impl Runtime {
    /// Loads a Rust function as a kernel of a device that runs such (`host`, `sim`): it is called once a group, several
    /// groups at a time, and loops over the group's threads itself. As a function of [`Stream::host_fn`] it can't call the
    /// runtime. May start the runtime.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the device runs no functions of this process.
    pub fn host_kernel<'a>(
        &self,
        device: impl Into<DeviceArg<'a>>,
        function: impl Fn(&WorkGroup, &[KernelArg]) + Send + Sync + 'static,
    ) -> Result<Kernel> {
        let port = self.port("host_kernel", device.into())?;
        let kernel = move |group: &WorkGroup, args: &[KernelArg]| local::as_host_fn(|| function(group, args));
        let loaded = Loaded::host(Arc::clone(port), HostKernel::new(kernel))?;
        Ok(Kernel { runtime: self.clone(), loaded: Arc::new(loaded) })
    }

    /// Loads a function of a program that the device understands: PTX, a binary or CUDA C++ on CUDA, source on OpenCL.
    /// [`Runtime::kernel_formats`] tells which. May start the runtime.
    ///
    /// CUDA C++ is compiled for the device by NVRTC, which has to be installed beside the driver. Functions are found by the names
    /// that they have when declared `extern "C"`. For options, compile with `anyaccel_cuda::compile` and load the PTX.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a form that the device does not read; the driver's, with the log of its compiler, for a
    /// program that does not build or has no such function, or with the name of the compiler that is missing.
    ///
    /// # Safety
    /// The program is sound to launch with the arguments that it expects.
    pub unsafe fn load_kernel<'a>(
        &self,
        device: impl Into<DeviceArg<'a>>,
        format: Format,
        code: &[u8],
        entry: &str,
    ) -> Result<Kernel> {
        let port = self.port("load_kernel", device.into())?;
        // SAFETY: the promise of this function's caller.
        let loaded = unsafe { Loaded::load(Arc::clone(port), KernelSource::Code { format, code, entry }) }?;
        Ok(Kernel { runtime: self.clone(), loaded: Arc::new(loaded) })
    }

    /// The forms of programs that a device loads, the best first; none where it loads none. May start the runtime.
    ///
    /// # Errors
    /// Those of the device argument.
    pub fn kernel_formats<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<Vec<Format>> {
        let port = self.port("kernel_formats", device.into())?;
        Ok(port.kernel_formats())
    }
}

impl Stream {
    /// Launches a kernel. Arguments are taken before it returns.
    ///
    /// ```
    /// use anyaccel::{Launch, LaunchArg};
    /// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
    /// let negate = runtime.host_kernel((), |group, args| {
    ///     let len = args[0].len as usize / group.groups[0] as usize;
    ///     // SAFETY: each group has a part of its own, inside the argument.
    ///     let part = unsafe {
    ///         std::slice::from_raw_parts_mut(args[0].ptr.add(len * group.index[0] as usize), len)
    ///     };
    ///     part.iter_mut().for_each(|byte| *byte = !*byte);
    /// })?;
    /// let buffer = runtime.buffer_from(&[0, 1, 2, 3])?;
    /// let stream = runtime.current_stream(())?;
    /// // SAFETY: the kernel takes one argument, whose length two groups share evenly.
    /// unsafe { stream.launch(&negate, Launch::linear(2, 1), &[LaunchArg::Buffer(buffer.all())])? };
    /// assert_eq!(buffer.to_vec()?, [255, 254, 253, 252]);
    /// # Ok::<(), anyaccel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty launch or too many arguments; [`Error::Misaligned`];
    /// [`Error::ForeignRuntime`], [`Error::ForeignDevice`]; the driver's.
    ///
    /// # Safety
    /// The arguments are those that the kernel expects: their number, their lengths, and no other work uses their memory
    /// at the same time in a way that conflicts.
    pub unsafe fn launch(&self, kernel: &Kernel, launch: Launch, args: &[LaunchArg<'_>]) -> Result<()> {
        let call = "Stream.launch";
        let port = self.port(call)?;
        if !kernel.runtime.core.current() {
            return Err(Error::StaleHandle { what: "kernel" });
        }
        if !kernel.runtime.same(&self.runtime) {
            return Err(Error::ForeignRuntime { what: "kernel" });
        }
        if kernel.device() != self.device() {
            return Err(Error::ForeignDevice { what: "kernel", given: kernel.device(), wanted: self.device() });
        }
        if launch.groups.contains(&0) || launch.threads.contains(&0) {
            let reason = format!("no extent may be 0, got groups {:?}, threads {:?}", launch.groups, launch.threads);
            return Err(Error::Argument { argument: "launch", reason });
        }
        let alignment = port.info().place_alignment.max(1);
        let mut parts = Vec::with_capacity(args.len());
        for arg in args {
            parts.push(match arg {
                LaunchArg::Bytes(bytes) => LaunchPart::Bytes(bytes),
                LaunchArg::Local(len) => LaunchPart::Local(*len),
                LaunchArg::Buffer(slice) => {
                    slice.buffer().on(self)?;
                    if !slice.offset().is_multiple_of(alignment) {
                        let (what, offset) = ("kernel argument", slice.offset());
                        return Err(Error::Misaligned { what, offset, alignment });
                    }
                    match slice.part()? {
                        Some(part) => LaunchPart::Part(part),
                        None => {
                            let reason = "a buffer of no bytes can't be an argument".to_owned();
                            return Err(Error::Argument { argument: "args", reason });
                        }
                    }
                }
            });
        }
        // SAFETY: H15 is this function's own condition.
        unsafe { port.launch_loaded(call, &self.lane, &kernel.loaded, launch, &parts) }
    }
}
