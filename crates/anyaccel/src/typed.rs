//! Buffers of elements.

use crate::buffer::{Buffer, BufferSlice, room};
use crate::device::DeviceArg;
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::stream::Stream;
use anyaccel_hal::DType;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

/// A Rust type whose bytes are those of an element type.
///
/// # Safety
/// The type has no padding, every pattern of bytes is a value of it, its size is that of [`Element::DTYPE`], and its bytes
/// mean there what they mean here.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The element type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        // SAFETY: a plain number of the machine, with the size and meaning of the element type.
        unsafe impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}
elements! {
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    f32 => F32, f64 => F64,
}

fn bytes_of<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: an Element has no padding, so all its bytes are initialised; u8 has no alignment.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

fn bytes_of_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and every pattern of bytes is a value of an Element.
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

/// A [`Buffer`] of elements of one type.
///
/// ```
/// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
/// let stream = runtime.current_stream(())?;
/// let a = runtime.array_from(&[1.5f32, -2.5, 3e9])?;
/// let b = a.convert::<i32>(&stream)?;
/// assert_eq!(b.to_vec()?, [1, -2, i32::MAX]);
/// b.slice(1..)?.fill(&stream, 7)?;
/// assert_eq!(b.to_vec()?, [1, 7, 7]);
/// # Ok::<(), anyaccel::Error>(())
/// ```
pub struct TypedBuffer<T: Element> {
    bytes: Buffer,
    _elements: PhantomData<T>,
}

impl<T: Element> fmt::Debug for TypedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, device) = (self.len(), self.bytes.device());
        f.debug_struct("TypedBuffer").field("dtype", &T::DTYPE).field("len", &len).field("device", &device).finish()
    }
}

/// A part of a [`TypedBuffer`].
#[derive(Clone, Copy, Debug)]
pub struct TypedSlice<'a, T: Element> {
    bytes: BufferSlice<'a>,
    _elements: PhantomData<T>,
}

const fn size<T: Element>() -> u64 {
    size_of::<T>() as u64
}

impl<'a, T: Element> TypedSlice<'a, T> {
    /// How many elements it has.
    pub fn len(&self) -> u64 {
        self.bytes.len() / size::<T>()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The same part as bytes.
    pub fn bytes(&self) -> BufferSlice<'a> {
        self.bytes
    }

    /// A part of this part, in elements.
    ///
    /// # Errors
    /// [`Error::Range`], in bytes.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<TypedSlice<'a, T>> {
        let scale = |bound: Bound<&u64>| match bound {
            Bound::Included(&at) => Bound::Included(at.saturating_mul(size::<T>())),
            Bound::Excluded(&at) => Bound::Excluded(at.saturating_mul(size::<T>())),
            Bound::Unbounded => Bound::Unbounded,
        };
        let start = match range.start_bound() {
            Bound::Excluded(&at) => Bound::Included(at.saturating_add(1).saturating_mul(size::<T>())),
            other => scale(other),
        };
        let end = match range.end_bound() {
            Bound::Included(&at) => Bound::Excluded(at.saturating_add(1).saturating_mul(size::<T>())),
            other => scale(other),
        };
        Ok(TypedSlice { bytes: self.bytes.slice((start, end))?, _elements: PhantomData })
    }

    /// Sets every element, in the order of the stream.
    ///
    /// # Errors
    /// Those of [`Stream::fill`].
    pub fn fill(&self, stream: &Stream, value: T) -> Result<()> {
        stream.fill(&self.bytes, bytes_of(&[value]))
    }

    /// Copies elements from another part of equal length, of this device or another, in the order of the stream.
    ///
    /// # Errors
    /// Those of [`Stream::copy`].
    pub fn copy_from(&self, stream: &Stream, source: &TypedSlice<'_, T>) -> Result<()> {
        stream.copy(&self.bytes, &source.bytes)
    }

    /// Copies elements from the host, in the order of the stream; see [`Stream::upload`].
    ///
    /// # Errors
    /// Those of [`Stream::upload`].
    pub fn upload(&self, stream: &Stream, elements: &[T]) -> Result<()> {
        stream.upload(&self.bytes, bytes_of(elements))
    }

    /// Copies elements to the host, in the order of the stream, and waits.
    ///
    /// # Errors
    /// Those of [`Stream::download`].
    pub fn download(&self, stream: &Stream, elements: &mut [T]) -> Result<()> {
        stream.download(bytes_of_mut(elements), &self.bytes)
    }
}

impl<T: Element> TypedBuffer<T> {
    /// A buffer seen as elements.
    ///
    /// # Errors
    /// [`Error::Length`] if its length is no multiple of the element's size.
    pub fn from_bytes(bytes: Buffer) -> Result<Self> {
        let whole = bytes.len() - bytes.len() % size::<T>();
        if whole == bytes.len() {
            Ok(Self { bytes, _elements: PhantomData })
        } else {
            Err(Error::Length { what: "a buffer of whole elements", expected: whole, got: bytes.len() })
        }
    }

    /// The buffer as bytes.
    pub fn into_bytes(self) -> Buffer {
        self.bytes
    }

    /// The buffer as bytes.
    pub fn as_bytes(&self) -> &Buffer {
        &self.bytes
    }

    /// How many elements it has.
    pub fn len(&self) -> u64 {
        self.bytes.len() / size::<T>()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Its element type.
    pub fn dtype(&self) -> DType {
        T::DTYPE
    }

    /// All its elements.
    pub fn all(&self) -> TypedSlice<'_, T> {
        TypedSlice { bytes: self.bytes.all(), _elements: PhantomData }
    }

    /// A part of it, in elements.
    ///
    /// # Errors
    /// [`Error::Range`], in bytes.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<TypedSlice<'_, T>> {
        self.all().slice(range)
    }

    /// Its elements, once all work on this thread's current stream of its device has ended.
    ///
    /// # Errors
    /// [`Error::HostOutOfMemory`] if this process has no room for them; the driver's.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let bytes = self.bytes.to_vec()?;
        let mut elements = room("TypedBuffer.to_vec", bytes.len() as u64)?;
        for element in bytes.chunks_exact(size_of::<T>()) {
            // SAFETY: exactly the bytes of one element, and every pattern of bytes is one.
            elements.push(unsafe { element.as_ptr().cast::<T>().read_unaligned() });
        }
        Ok(elements)
    }

    /// A new buffer with the elements converted, in the order of the stream. The rules are those of
    /// `anyaccel_kernels::convert`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] and those of [`Stream::convert`].
    pub fn convert<U: Element>(&self, stream: &Stream) -> Result<TypedBuffer<U>> {
        self.bytes.on(stream)?;
        let _scope = stream.enter()?;
        let converted = stream.runtime().array::<U>(self.len())?;
        stream.convert(&converted.bytes.all(), U::DTYPE, &self.bytes.all(), T::DTYPE)?;
        Ok(converted)
    }
}

impl Runtime {
    /// Elements on this thread's current device. Contents are undefined. May start the runtime.
    ///
    /// # Errors
    /// As [`Runtime::alloc`].
    pub fn array<T: Element>(&self, len: u64) -> Result<TypedBuffer<T>> {
        let bytes = len.checked_mul(size::<T>()).ok_or_else(|| Error::Argument {
            argument: "len",
            reason: format!("{len} elements of {} bytes overflow", size::<T>()),
        })?;
        Ok(TypedBuffer { bytes: self.alloc(bytes)?, _elements: PhantomData })
    }

    /// Zeroes on this thread's current device, in the order of its current stream.
    ///
    /// # Errors
    /// As [`Runtime::alloc`].
    pub fn array_zeros<T: Element>(&self, len: u64) -> Result<TypedBuffer<T>> {
        let array = self.array::<T>(len)?;
        self.current_stream(array.bytes.device())?.fill(&array.bytes.all(), &[0])?;
        Ok(array)
    }

    /// Elements on this thread's current device with these values, in the order of its current stream.
    ///
    /// # Errors
    /// As [`Runtime::alloc`].
    pub fn array_from<T: Element>(&self, elements: &[T]) -> Result<TypedBuffer<T>> {
        Ok(TypedBuffer { bytes: self.buffer_from(bytes_of(elements))?, _elements: PhantomData })
    }
}

impl Buffer {
    /// A copy on another device (or the same), in the order of that device's current stream on this thread, which waits for
    /// this thread's current stream of the source's.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; those of the device argument and of [`Stream::copy`].
    pub fn to_device<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<Buffer> {
        let runtime = self.runtime();
        let copy = runtime.alloc_on(device, self.len())?;
        let (from, to) = (runtime.current_stream(self.device())?, runtime.current_stream(copy.device())?);
        to.wait_stream(&from)?;
        to.copy(&copy.all(), &self.all())?;
        Ok(copy)
    }
}
