//! Green contexts: a partition of a GPU's SMs between compute and communication streams. Requires a
//! driver for CUDA 12.5 or later.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;

use super::functions::functions;
use super::gpu::Gpu;
use super::libraries::{Library, open};
use super::stream::{Priority, Stream};
use base::error::{Error, Result};

functions! {
    /// Functions for SM partitioning; older drivers lack some of them.
    struct Functions;
    fn cuDeviceGetDevResource(device: sys::CUdevice, resource: *mut Resource, kind: c_uint) -> u32;
    fn cuDevSmResourceSplitByCount(
        result: *mut Resource, groups: *mut c_uint, input: *const Resource, remaining: *mut Resource,
        flags: c_uint, least: c_uint,
    ) -> u32;
    fn cuDevResourceGenerateDesc(description: *mut *mut c_void, resources: *mut Resource, count: c_uint) -> u32;
    fn cuGreenCtxCreate(
        context: *mut *mut c_void, description: *mut c_void, device: sys::CUdevice, flags: c_uint,
    ) -> u32;
    fn cuGreenCtxDestroy(context: *mut c_void) -> u32;
    fn cuGreenCtxStreamCreate(
        stream: *mut sys::CUstream, context: *mut c_void, flags: c_uint, priority: c_int,
    ) -> u32;
}

/// `CUdevResource` for SMs, padded for fields added by later versions.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
struct Resource {
    kind: c_uint,
    padding: [u8; 92],
    multiprocessors: c_uint,
    later: [u8; 156],
}

const NOTHING: Resource = Resource { kind: 0, padding: [0; 92], multiprocessors: 0, later: [0; 156] };

/// `CU_DEV_RESOURCE_TYPE_SM`.
const MULTIPROCESSORS: c_uint = 1;
/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING`: allows partitions smaller than a cluster needs.
const FINE: c_uint = 1;
/// `CU_GREEN_CTX_DEFAULT_STREAM`, required to create a green context.
const DEFAULT_STREAM: c_uint = 1;

fn loaded() -> Result<&'static Functions> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    let load = || {
        let library = open(Library::Driver).map_err(|error| error.to_string())?;
        Functions::load(library).map_err(|missing| {
            format!(
                "the driver cannot divide a GPU's multiprocessors (it lacks {}): that needs one for CUDA 12.5 or \
                 newer; --comm-sms 0 does without",
                missing.join(", ")
            )
        })
    };
    LOADED.get_or_init(load).as_ref().map_err(|why| Error::input(why.clone()))
}

/// GPU with its SMs partitioned between compute and communication.
#[derive(Debug)]
pub struct Divided {
    compute: Arc<Part>,
    comm: Arc<Part>,
}

/// Green context on some of a GPU's SMs.
#[derive(Debug)]
struct Part {
    gpu: Gpu,
    context: *mut c_void,
    multiprocessors: u32,
}

// SAFETY: the handle is a plain address, usable from any thread.
unsafe impl Send for Part {}
// SAFETY: as above.
unsafe impl Sync for Part {}

impl Drop for Part {
    fn drop(&mut self) {
        let context = self.context;
        self.gpu.destroy(|_| {
            if let Ok(functions) = loaded() {
                // SAFETY: created by `Gpu::part` and destroyed once; its streams hold it, so none are
                // left.
                unsafe { (functions.cuGreenCtxDestroy)(context) };
            }
        });
    }
}

impl Gpu {
    /// Partitions the SMs: at least `for_comm` for communication, the rest for compute.
    ///
    /// # Errors
    ///
    /// Returns an input error if the driver does not support it or if one side would get no SMs.
    pub fn divide(&self, for_comm: u32) -> Result<Divided> {
        let functions = loaded()?;
        self.bind()?;
        let all = self.info().multiprocessors;
        if for_comm == 0 || for_comm >= all {
            return Err(Error::input(format!(
                "{for_comm} of {all} multiprocessors for communication leave none for one or the other; choose \
                 --comm-sms 1 to {}",
                all - 1
            )));
        }
        let mut whole = NOTHING;
        // SAFETY: writes one resource; the struct is large enough for later versions.
        let code =
            unsafe { (functions.cuDeviceGetDevResource)(self.device(), &mut whole, MULTIPROCESSORS) };
        self.check(code, || "asking for its multiprocessors".into())?;
        let (mut comm, mut compute, mut groups) = (NOTHING, NOTHING, 1);
        // SAFETY: as above: one group is requested, and one remainder is written.
        let code = unsafe {
            (functions.cuDevSmResourceSplitByCount)(
                &mut comm,
                &mut groups,
                &whole,
                &mut compute,
                FINE,
                for_comm,
            )
        };
        self.check(code, || format!("setting {for_comm} multiprocessors aside"))?;
        if groups == 0 || compute.multiprocessors == 0 {
            return Err(Error::input(format!(
                "the driver sets {} of {all} multiprocessors aside for {for_comm}, and leaves {}; choose a smaller \
                 --comm-sms",
                comm.multiprocessors, compute.multiprocessors
            )));
        }
        Ok(Divided { compute: self.part(compute)?, comm: self.part(comm)? })
    }

    fn part(&self, mut resource: Resource) -> Result<Arc<Part>> {
        let functions = loaded()?;
        let (mut description, mut context) = (null_mut(), null_mut());
        // SAFETY: one resource, obtained from the driver; writes one handle.
        let code = unsafe { (functions.cuDevResourceGenerateDesc)(&mut description, &mut resource, 1) };
        self.check(code, || "describing a part of its multiprocessors".into())?;
        // SAFETY: the description was just created; writes one handle.
        let code = unsafe {
            (functions.cuGreenCtxCreate)(&mut context, description, self.device(), DEFAULT_STREAM)
        };
        self.check(code, || "making a context of a part of its multiprocessors".into())?;
        let multiprocessors = resource.multiprocessors;
        Ok(Arc::new(Part { gpu: self.clone(), context, multiprocessors }))
    }
}

impl Divided {
    /// SMs for compute and for communication; the latter may exceed the request.
    pub fn multiprocessors(&self) -> (u32, u32) {
        (self.compute.multiprocessors, self.comm.multiprocessors)
    }

    /// Creates a stream on the communication SMs or on the compute SMs.
    pub fn stream(&self, for_comm: bool, priority: Priority) -> Result<Stream> {
        let part = if for_comm { &self.comm } else { &self.compute };
        let functions = loaded()?;
        let gpu = &part.gpu;
        let priority = gpu.priority(priority)?;
        let mut stream = null_mut();
        // SAFETY: the context is alive; writes one handle to a valid address.
        let code = unsafe {
            (functions.cuGreenCtxStreamCreate)(&mut stream, part.context, Stream::NON_BLOCKING, priority)
        };
        gpu.check(code, || "making a stream of a part of its multiprocessors".into())?;
        Ok(Stream::of(gpu.clone(), stream, Some(Arc::clone(part) as Arc<_>)))
    }
}
