//! The host trait on top of Envoy, and the SDK's callbacks.
//!
//! Uses `*_bytes` getters only: the SDK's text getters panic on a header byte above 0x7f. Headers are read
//! and written in the header callback or while headers are paused, the only times Envoy accepts it.

// The SDK's entry point is an exported C function.
#![allow(unsafe_code)]

use std::time::UNIX_EPOCH;

use asp_edge::{Reason, Reply};
use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, BufferType, ContextType, LogLevel, MapType, MetricType, Status};

use crate::host::{Counted, Host};
use crate::request::{Flow, Request};
use crate::signature;
use crate::vm::{Applied, Vm};

thread_local! {
    static VM: Vm = Vm::default();
    static METRICS: Metrics = Metrics::define();
}

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    signature::install(foreign_function);
    proxy_wasm::set_root_context(|_| Box::new(Root));
}}

/// Metric ids, defined once per VM: Envoy never frees a metric.
struct Metrics {
    forward: Option<u32>,
    answer: Option<u32>,
    refuse: Vec<(Reason, Option<u32>)>,
    /// Gauge: the revision the worker that was configured last has in force.
    revision: Option<u32>,
}

impl Metrics {
    fn define() -> Metrics {
        let define = |counted: Counted| hostcalls::define_metric(MetricType::Counter, &counted.metric()).ok();
        Metrics {
            forward: define(Counted::Forward),
            answer: define(Counted::Answer),
            refuse: Reason::ALL.map(|reason| (reason, define(Counted::Refuse(reason)))).to_vec(),
            revision: hostcalls::define_metric(MetricType::Gauge, "asp_edge_snapshot_revision").ok(),
        }
    }

    fn id(&self, counted: Counted) -> Option<u32> {
        match counted {
            Counted::Forward => self.forward,
            Counted::Answer => self.answer,
            Counted::Refuse(reason) => self.refuse.iter().find(|(known, _)| *known == reason)?.1,
        }
    }
}

struct Root;

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
        // Touched here so that the metrics exist before the first request.
        METRICS.with(|_| {});
        let bytes = match size {
            0 => Vec::new(),
            size => hostcalls::get_buffer(BufferType::PluginConfiguration, 0, size)
                .ok()
                .flatten()
                .unwrap_or_default(),
        };
        if bytes.len() != size {
            let _ = hostcalls::log(LogLevel::Error, "edge snapshot refused: configuration could not be read");
            return false;
        }
        match VM.with(|vm| vm.configure(&bytes)) {
            Ok(Applied::InForce(revision)) => {
                if let Some(id) = METRICS.with(|metrics| metrics.revision) {
                    let _ = hostcalls::record_metric(id, revision);
                }
                let _ =
                    hostcalls::log(LogLevel::Info, &format!("edge snapshot in force: revision {revision}"));
                true
            }
            Ok(Applied::Older(revision)) => {
                let text =
                    format!("edge snapshot not applied: revision {revision} is older than the one in force");
                let _ = hostcalls::log(LogLevel::Warn, &text);
                true
            }
            Err(error) => {
                let _ = hostcalls::log(LogLevel::Error, &format!("edge snapshot refused: {error}"));
                false
            }
        }
    }

    fn create_http_context(&self, _context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream { request: Request::default() }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

struct Stream {
    request: Request,
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        VM.with(|vm| action(self.request.on_headers(vm, &Envoy, end_of_stream)))
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        VM.with(|vm| action(self.request.on_body(vm, &Envoy, size, end_of_stream)))
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        VM.with(|vm| action(self.request.on_trailers(vm, &Envoy)))
    }
}

fn action(flow: Flow) -> Action {
    match flow {
        Flow::Continue => Action::Continue,
        Flow::Pause => Action::Pause,
    }
}

/// `None`: this Envoy has no such function.
fn foreign_function(name: &str, arguments: &[u8]) -> signature::Foreign {
    match hostcalls::call_foreign_function(name, Some(arguments)) {
        Ok(result) => signature::Foreign::Answer(result.unwrap_or_default()),
        Err(Status::NotFound) => signature::Foreign::Absent,
        Err(_) => signature::Foreign::Refused,
    }
}

// The SDK's own getter copies every name and value.
#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
}

/// The current stream's Envoy.
struct Envoy;

impl Host for Envoy {
    fn headers(&self) -> Vec<u8> {
        let mut data = std::ptr::null_mut();
        let mut size = 0;
        // SAFETY: both pointers are valid for the call, and Envoy keeps neither.
        let status =
            unsafe { proxy_get_header_map_pairs(MapType::HttpRequestHeaders as u32, &mut data, &mut size) };
        if status != Status::Ok as u32 || data.is_null() {
            return Vec::new();
        }
        // SAFETY: Envoy filled `size` bytes that the SDK's `proxy_on_memory_allocate` gave it: a boxed slice of that
        // length, which nobody else holds.
        unsafe { Vec::from_raw_parts(data, size, size) }
    }

    fn body(&self, size: usize) -> Vec<u8> {
        hostcalls::get_buffer(BufferType::HttpRequestBody, 0, size).ok().flatten().unwrap_or_default()
    }

    fn remove_header(&self, name: &str) {
        let _ = hostcalls::remove_map_value(MapType::HttpRequestHeaders, name);
    }

    fn set_header(&self, name: &str, value: &str) {
        let _ = hostcalls::set_map_value(MapType::HttpRequestHeaders, name, Some(value));
    }

    fn clear_route_cache(&self) {
        let _ = hostcalls::call_foreign_function("clear_route_cache", None);
    }

    fn respond(&self, reply: &Reply) {
        let headers = reply.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let body = (!reply.body.is_empty()).then_some(reply.body.as_slice());
        let _ = hostcalls::send_http_response(u32::from(reply.status), headers, body);
    }

    fn warn(&self, text: &str) {
        let _ = hostcalls::log(LogLevel::Warn, text);
    }

    fn now_ms(&self) -> u64 {
        let now = hostcalls::get_current_time().unwrap_or(UNIX_EPOCH);
        // An unreadable clock is the year 1970: every token is then from the future and refused.
        now.duration_since(UNIX_EPOCH).map(|elapsed| elapsed.as_millis() as u64).unwrap_or_default()
    }

    fn count(&self, counted: Counted) {
        if let Some(id) = METRICS.with(|metrics| metrics.id(counted)) {
            let _ = hostcalls::increment_metric(id, 1);
        }
    }
}
