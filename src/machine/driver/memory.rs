//! GPU memory.

use super::api::code;
use super::gpu::Gpu;
use base::error::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    pub fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl std::ops::Add<u64> for DevicePtr {
    type Output = Self;

    fn add(self, bytes: u64) -> Self {
        self.offset(bytes)
    }
}

/// GPU memory, freed on drop (deferred while this thread captures).
#[derive(Debug)]
pub struct Memory {
    gpu: Gpu,
    ptr: DevicePtr,
    bytes: u64,
}

impl Drop for Memory {
    fn drop(&mut self) {
        let ptr = self.ptr.0;
        if self.bytes > 0 {
            // SAFETY: allocated by `Gpu::allocate`, freed once.
            self.gpu.free(move |api| unsafe {
                (api.cuMemFree_v2)(ptr);
            });
        }
    }
}

impl Gpu {
    /// Allocates GPU memory, aligned to at least 256 bytes and uninitialized; zero bytes are allowed. An
    /// out-of-memory error gives the purpose (`what`), the requested and the free bytes, and advice.
    pub fn allocate(&self, bytes: u64, what: &str) -> Result<Memory> {
        if bytes == 0 {
            return Ok(Memory { gpu: self.clone(), ptr: DevicePtr(0), bytes });
        }
        self.bind()?;
        let mut ptr = 0;
        // SAFETY: writes one address to a valid place; an impossible size is rejected.
        let answer = unsafe {
            (self.api().cuMemAlloc_v2)(&mut ptr, usize::try_from(bytes).unwrap_or(usize::MAX))
        };
        if answer == code::OUT_OF_MEMORY {
            let memory = self.memory().ok();
            return Err(Error::failed(out_of_memory(self.info().index, bytes, what, memory)));
        }
        self.check(answer, || format!("allocating {bytes} bytes for {what}"))?;
        Ok(Memory { gpu: self.clone(), ptr: DevicePtr(ptr), bytes })
    }
}

/// Arithmetic of an allocation that does not fit.
fn out_of_memory(index: usize, bytes: u64, what: &str, memory: Option<(u64, u64)>) -> String {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let free = memory.map_or(String::new(), |(free, total)| {
        format!(
            ", {:.2} GiB of {:.2} GiB are free: {:.2} GiB too little",
            gib(free),
            gib(total),
            gib(bytes.saturating_sub(free))
        )
    });
    format!(
        "out of memory on GPU {index}: {what} needs {bytes} bytes ({:.2} GiB){free}; choose a smaller batch, \
         context or model or a larger TP, and see with nvidia-smi whether other processes use the GPU",
        gib(bytes)
    )
}

impl Memory {
    /// Start address; 0 for zero bytes.
    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// Requested size; the driver may have rounded up.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies `data` to `offset` and waits for completion. Not ordered after work on streams. Returns an
    /// error if the data do not fit behind `offset`.
    pub fn upload(&self, offset: u64, data: &[u8]) -> Result<()> {
        let to = self.part(offset, data.len(), "writing")?;
        if data.is_empty() {
            return Ok(());
        }
        self.gpu.bind()?;
        let what = || format!("copying {} bytes to it", data.len());
        // SAFETY: both ranges are valid: checked above, and borrowed.
        let code = unsafe { (self.gpu.api().cuMemcpyHtoD_v2)(to.0, data.as_ptr().cast(), data.len()) };
        self.gpu.check(code, what)?;
        // For pageable memory the call may return before the data has arrived, and our streams do not
        // wait for the default stream that carries the copy.
        // SAFETY: null is the default stream.
        let code = unsafe { (self.gpu.api().cuStreamSynchronize)(std::ptr::null_mut()) };
        self.gpu.check(code, what)
    }

    /// Fills `data` from `offset` and waits for completion. Not ordered after work on streams. Returns
    /// an error if fewer bytes follow `offset`.
    pub fn download(&self, offset: u64, data: &mut [u8]) -> Result<()> {
        let from = self.part(offset, data.len(), "reading")?;
        if data.is_empty() {
            return Ok(());
        }
        self.gpu.bind()?;
        // SAFETY: as above.
        let code =
            unsafe { (self.gpu.api().cuMemcpyDtoH_v2)(data.as_mut_ptr().cast(), from.0, data.len()) };
        self.gpu.check(code, || format!("copying {} bytes from it", data.len()))
    }

    fn part(&self, offset: u64, length: usize, doing: &str) -> Result<DevicePtr> {
        within(offset, length as u64, self.bytes, doing)?;
        Ok(self.ptr.offset(offset))
    }
}

fn within(offset: u64, length: u64, bytes: u64, doing: &str) -> Result<()> {
    if offset.checked_add(length).is_none_or(|end| end > bytes) {
        return Err(Error::failed(format!(
            "{doing} {length} bytes at {offset} of an allocation of {bytes} bytes"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_told_with_its_arithmetic() {
        let text = out_of_memory(3, 5 << 30, "weights of layer 7", Some((2 << 30, 80 << 30)));
        assert!(text.starts_with(
            "out of memory on GPU 3: weights of layer 7 needs 5368709120 bytes (5.00 GiB), 2.00 GiB of \
             80.00 GiB are free: 3.00 GiB too little; "
        ));
        assert!(out_of_memory(0, 1, "x", None).contains("x needs 1 bytes (0.00 GiB); choose"));
    }

    #[test]
    fn parts_outside_of_an_allocation_are_refused() {
        assert!(within(0, 16, 16, "reading").is_ok());
        assert!(within(16, 0, 16, "reading").is_ok());
        assert!(within(u64::MAX, 1, 16, "reading").is_err());
        let error = within(8, 9, 16, "reading").err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(error, "reading 9 bytes at 8 of an allocation of 16 bytes");
    }
}
