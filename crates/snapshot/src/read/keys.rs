//! The keys that mean something, as the first strings of the reader's table: a known key is a small number.

macro_rules! keys {
    ($($name:ident $text:literal)*) => {
        /// A key of a snapshot's dictionaries.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(super) enum Key { $($name),* }

        /// Their texts, in the order of [`Key`].
        pub(super) const KEYS: &[(Key, &str)] = &[$((Key::$name, $text)),*];
    };
}

keys! {
    Action "action"
    Addr "addr"
    DeviceFree "device_free"
    Size "size"
    Stream "stream"
    TimeUs "time_us"
    CompileContext "compile_context"
    UserMetadata "user_metadata"
    PoolId "pool_id"
    Frames "frames"
    Name "name"
    Filename "filename"
    Line "line"
    State "state"
    Address "address"
    RequestedSize "requested_size"
    Device "device"
    TotalSize "total_size"
    AllocatedSize "allocated_size"
    ActiveSize "active_size"
    SegmentType "segment_type"
    SegmentPoolId "segment_pool_id"
    IsExpandable "is_expandable"
    Blocks "blocks"
    Stage "stage"
    History "history"
    RealSize "real_size"
    Segments "segments"
    DeviceTraces "device_traces"
    AllocatorSettings "allocator_settings"
    ExternalAnnotations "external_annotations"
    HostSegments "host_segments"
    HostTraces "host_traces"
    Anyaccel "anyaccel"
}

impl Key {
    /// The key of a string's number.
    #[inline]
    pub(super) fn of(text: u32) -> Option<Key> {
        KEYS.get(text as usize).map(|&(key, _)| key)
    }

    /// Its text.
    pub(super) fn text(self) -> &'static str {
        KEYS[self as usize].1
    }

    /// A set of keys as bits.
    #[inline]
    pub(super) fn bit(self) -> u64 {
        1 << self as u32
    }
}
