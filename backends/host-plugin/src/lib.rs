//! The built-in device as a plugin.

anyaccel_abi::export!(anyaccel_host::driver);
