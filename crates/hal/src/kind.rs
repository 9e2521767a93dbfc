//! Kinds of device: `cuda`, `host`, a vendor's `npu`.

use std::fmt;

/// A kind of device, by its name. Two kinds are equal when their names are.
///
/// Names are lower-case ASCII letters, digits and `_`, beginning with a letter, at most 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(&'static str);

impl Kind {
    /// NVIDIA GPUs.
    pub const CUDA: Kind = Kind("cuda");
    /// AMD GPUs. PyTorch calls them `cuda`.
    pub const HIP: Kind = Kind("hip");
    /// Intel GPUs over Level Zero.
    pub const XPU: Kind = Kind("xpu");
    /// Apple GPUs over Metal.
    pub const MPS: Kind = Kind("mps");
    /// Meta's training and inference accelerator, as a vendor's plugin.
    pub const MTIA: Kind = Kind("mtia");
    /// Any device with an OpenCL driver.
    pub const OPENCL: Kind = Kind("opencl");
    /// The built-in device: this machine's memory and cores.
    pub const HOST: Kind = Kind("host");
    /// The simulated device.
    pub const SIM: Kind = Kind("sim");
    /// Ordinary host memory, which is no accelerator.
    pub const CPU: Kind = Kind("cpu");
    /// Shapes without memory, which is no accelerator.
    pub const META: Kind = Kind("meta");

    /// Every kind with a name of its own, in the order in which one is chosen.
    pub const KNOWN: [Kind; 10] = [
        Self::CUDA,
        Self::HIP,
        Self::XPU,
        Self::MPS,
        Self::MTIA,
        Self::OPENCL,
        Self::HOST,
        Self::SIM,
        Self::CPU,
        Self::META,
    ];

    /// A vendor's kind.
    ///
    /// # Errors
    /// `None` if the name breaks the rules above.
    pub const fn private(name: &'static str) -> Option<Kind> {
        if Self::is_name(name) { Some(Kind(name)) } else { None }
    }

    /// Whether a kind may have that name.
    pub const fn is_name(name: &str) -> bool {
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes.len() > 32 || !bytes[0].is_ascii_lowercase() {
            return false;
        }
        let mut at = 1;
        while at < bytes.len() {
            let byte = bytes[at];
            if !(byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
                return false;
            }
            at += 1;
        }
        true
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn names_of_private_kinds_are_checked() {
        assert_eq!(Kind::private("npu").map(Kind::name), Some("npu"));
        assert_eq!(Kind::private("cuda"), Some(Kind::CUDA));
        for bad in ["", "Npu", "1npu", "n:pu", "n pu", "nänu", "a23456789012345678901234567890123"] {
            assert_eq!(Kind::private(bad), None, "{bad:?}");
        }
    }
}
