//! The host trait on top of Envoy, and the SDK's callbacks.
//!
//! Two roots share a VM: the edge itself, and `asp-revoked`, which receives the recent revocations and sees no request
//! (its entry in the filter chain is disabled). The SDK creates both alike; Envoy's configuration tells them apart.
//! Both check a configuration by its bytes alone, so that one that fails in a worker's VM already fails in the canary
//! VM.
//!
//! Uses `*_bytes` getters only: the SDK's text getters panic on a header byte above 0x7f. Headers are read and written
//! in the header callback or while headers are paused, the only times when Envoy accepts it.

// The SDK's entry point is an exported C function.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::UNIX_EPOCH;

use asp_edge::{Reason, Reply, SnapshotError, UnauthenticatedKind};
use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, BufferType, ContextType, LogLevel, MapType, MetricType, Status};

use crate::host::{Host, MAX_ORGS, OTHER_ORGS, VerdictLabel, limited_metric, org_metric};
use crate::request::{Flow, Request};
use crate::shared::{self, SharedValue};
use crate::signature;
use crate::vm::{ConfigurationResult, Vm};

/// Root id of the recent revocations; every other one is the edge's.
const REVOKED_ROOT: &[u8] = b"asp-revoked";
/// Shared-data key of the recent revocations, for VMs that restart.
const REVOKED_KEY: &str = "asp-revoked";

thread_local! {
    static VM: Vm = Vm::default();
    static METRICS: MetricIds = MetricIds::define();
}

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    signature::install(foreign_function);
    proxy_wasm::set_root_context(|_| Box::new(Root::default()));
}}

/// Metric ids, defined once per VM: Envoy never frees a metric.
struct MetricIds {
    forward: Option<u32>,
    answer: Option<u32>,
    refuse: Vec<(Reason, Option<u32>)>,
    limited: Vec<(UnauthenticatedKind, Option<u32>)>,
    /// Gauge of the revision in force in the worker that was configured last.
    revision: Option<u32>,
    /// Gauge of the revision of the recent revocations, likewise.
    revocations: Option<u32>,
    /// Counters of the refusals of orgs, at most [`MAX_ORGS`], defined at the first refusal of each.
    orgs: RefCell<HashMap<String, Option<u32>>>,
    /// Counter of the refusals of all other orgs.
    other_orgs: Option<u32>,
}

impl MetricIds {
    fn define() -> MetricIds {
        let counter = |name: &str| hostcalls::define_metric(MetricType::Counter, name).ok();
        let define = |counted: VerdictLabel| counter(&counted.metric());
        let gauge = |name: &str| hostcalls::define_metric(MetricType::Gauge, name).ok();
        MetricIds {
            forward: define(VerdictLabel::Forward),
            answer: define(VerdictLabel::Answer),
            refuse: Reason::ALL.map(|reason| (reason, define(VerdictLabel::Refuse(reason)))).to_vec(),
            limited: UnauthenticatedKind::ALL.map(|kind| (kind, counter(&limited_metric(kind)))).to_vec(),
            revision: gauge("asp_edge_snapshot_revision"),
            revocations: gauge("asp_edge_revocations_revision"),
            orgs: RefCell::default(),
            other_orgs: counter(&format!("asp_edge_org_refusals_total.{OTHER_ORGS}")),
        }
    }

    fn id_of_org(&self, org: &str) -> Option<u32> {
        let mut orgs = self.orgs.borrow_mut();
        if let Some(known) = orgs.get(org) {
            return *known;
        }
        if orgs.len() >= MAX_ORGS {
            return self.other_orgs;
        }
        let id = hostcalls::define_metric(MetricType::Counter, &org_metric(org)).ok();
        orgs.insert(org.to_owned(), id);
        id
    }

    fn id_of_limited(&self, kind: UnauthenticatedKind) -> Option<u32> {
        self.limited.iter().find(|(known, _)| *known == kind)?.1
    }

    fn id(&self, counted: VerdictLabel) -> Option<u32> {
        match counted {
            VerdictLabel::Forward => self.forward,
            VerdictLabel::Answer => self.answer,
            VerdictLabel::Refuse(reason) => self.refuse.iter().find(|(known, _)| *known == reason)?.1,
        }
    }
}

#[derive(Default)]
struct Root {
    /// Whether this root receives the recent revocations; known once it is configured.
    revoked: bool,
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
        // Initialised here so that the metrics exist before the first request.
        METRICS.with(|_| {});
        let id = hostcalls::get_property(vec!["plugin_root_id"]).ok().flatten();
        self.revoked = id.is_some_and(|id| id == REVOKED_ROOT);
        let bytes = match size {
            0 => Vec::new(),
            size => hostcalls::get_buffer(BufferType::PluginConfiguration, 0, size)
                .ok()
                .flatten()
                .unwrap_or_default(),
        };
        if bytes.len() != size {
            let _ = hostcalls::log(LogLevel::Error, "configuration rejected: it could not be read");
            return false;
        }
        VM.with(|vm| match self.revoked {
            true => put_revocations(vm, &bytes),
            false => put_snapshot(vm, &bytes),
        })
    }

    fn create_http_context(&self, _context_id: u32) -> Option<Box<dyn HttpContext>> {
        match self.revoked {
            true => Some(Box::new(Idle)),
            false => Some(Box::new(Stream { request: Request::default() })),
        }
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

fn put_snapshot(vm: &Vm, bytes: &[u8]) -> bool {
    // A restarted VM takes over the stored list.
    if !vm.has_recent()
        && let Some(recent) = shared::load(&SharedData)
    {
        let applied = Ok(vm.put_recent(&recent));
        report("recent revocations", METRICS.with(|metrics| metrics.revocations), &applied);
    }
    let applied = vm.configure(bytes);
    report("edge snapshot", METRICS.with(|metrics| metrics.revision), &applied)
}

fn put_revocations(vm: &Vm, bytes: &[u8]) -> bool {
    let applied = vm.configure_recent(bytes);
    if let Ok(ConfigurationResult::InForce(revision)) = applied {
        shared::keep(&SharedData, bytes, revision);
    }
    report("recent revocations", METRICS.with(|metrics| metrics.revocations), &applied)
}

/// Logs the result of a configuration; `false` makes Envoy reject the push.
fn report(what: &str, gauge: Option<u32>, applied: &Result<ConfigurationResult, SnapshotError>) -> bool {
    let (level, text) = match applied {
        Ok(ConfigurationResult::InForce(revision)) => {
            if let Some(id) = gauge {
                let _ = hostcalls::record_metric(id, *revision);
            }
            (LogLevel::Info, format!("{what} in force: revision {revision}"))
        }
        Ok(ConfigurationResult::Older(revision)) => (
            LogLevel::Warn,
            format!("{what} not applied: revision {revision} is older than the one in force"),
        ),
        Err(error) => (LogLevel::Error, format!("{what} rejected: {error}")),
    };
    let _ = hostcalls::log(level, &text);
    applied.is_ok()
}

struct SharedData;

impl SharedValue for SharedData {
    fn get(&self) -> (Option<Vec<u8>>, Option<u32>) {
        hostcalls::get_shared_data(REVOKED_KEY).unwrap_or_default()
    }

    fn set(&self, value: &[u8], state: Option<u32>) -> bool {
        hostcalls::set_shared_data(REVOKED_KEY, Some(value), state).is_ok()
    }
}

/// Context of requests if the entry of the recent revocations is enabled by mistake: it passes them.
struct Idle;

impl Context for Idle {}

impl HttpContext for Idle {}

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

    fn on_http_response_headers(&mut self, _count: usize, _end_of_stream: bool) -> Action {
        VM.with(|vm| self.request.on_response(vm, &Envoy));
        Action::Continue
    }
}

fn action(flow: Flow) -> Action {
    match flow {
        Flow::Continue => Action::Continue,
        Flow::Pause => Action::Pause,
    }
}

/// Calls a function of the host.
fn foreign_function(name: &str, arguments: &[u8]) -> signature::ForeignResult {
    match hostcalls::call_foreign_function(name, Some(arguments)) {
        Ok(result) => signature::ForeignResult::Answer(result.unwrap_or_default()),
        Err(Status::NotFound) => signature::ForeignResult::Absent,
        Err(_) => signature::ForeignResult::Refused,
    }
}

// The SDK's own getter copies every name and value.
#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
}

/// Envoy, for the current stream.
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
        // SAFETY: Envoy filled `size` bytes that the SDK's `proxy_on_memory_allocate` allocated: a boxed slice of that
        // length, to which there is no other reference.
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

    fn info(&self, text: &str) {
        let _ = hostcalls::log(LogLevel::Info, text);
    }

    fn warn(&self, text: &str) {
        let _ = hostcalls::log(LogLevel::Warn, text);
    }

    fn now_ms(&self) -> u64 {
        let now = hostcalls::get_current_time().unwrap_or(UNIX_EPOCH);
        // If the clock is unreadable, the year is 1970: every token is then from the future and refused.
        now.duration_since(UNIX_EPOCH).map(|elapsed| elapsed.as_millis() as u64).unwrap_or_default()
    }

    fn peer(&self) -> Option<String> {
        let address = hostcalls::get_property(vec!["source", "address"]).ok().flatten()?;
        String::from_utf8(address).ok()
    }

    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        hostcalls::get_map_value_bytes(MapType::HttpResponseHeaders, name).ok().flatten()
    }

    fn count(&self, counted: VerdictLabel) {
        if let Some(id) = METRICS.with(|metrics| metrics.id(counted)) {
            let _ = hostcalls::increment_metric(id, 1);
        }
    }

    fn count_refusal_of(&self, org: &str) {
        if let Some(id) = METRICS.with(|metrics| metrics.id_of_org(org)) {
            let _ = hostcalls::increment_metric(id, 1);
        }
    }

    fn count_limited(&self, kind: UnauthenticatedKind) {
        if let Some(id) = METRICS.with(|metrics| metrics.id_of_limited(kind)) {
            let _ = hostcalls::increment_metric(id, 1);
        }
    }
}
