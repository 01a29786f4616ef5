//! Routes: method and path, and the operation that they name.

use percent_encoding::percent_decode_str;

use crate::bounds::MAX_ID;
use crate::model::OperationKind;
use crate::version::Generation;

/// An operation that method and path name, with the ids in the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub generation: Generation,
    pub kind: OperationKind,
    /// First segment of a path of 1.0 before the others.
    pub tenant: Option<String>,
    pub(super) task: Option<String>,
    pub(super) config: Option<String>,
}

/// The reason why no operation fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteFault {
    #[error("no operation has this path")]
    Unknown,
    #[error("this path supports only {allowed}")]
    Method { allowed: &'static str },
}

/// Resource of a path, apart from version and tenant.
enum Resource {
    Send,
    Stream,
    Tasks,
    Task(String),
    Cancel(String),
    Subscribe(String),
    Configs(String),
    Config(String, String),
    Card,
}

/// Finds the operation of a method and a path below an agent's base path, such as `/message:send`, `/v1/tasks/7:cancel` or
/// `/tenant/tasks`. One slash at the end is ignored.
pub fn route(method: &str, path: &str) -> Result<Route, RouteFault> {
    let path = path.strip_prefix('/').ok_or(RouteFault::Unknown)?;
    let segments: Vec<&str> = path.strip_suffix('/').unwrap_or(path).split('/').collect();
    let (generation, tenant, resource) = split(&segments).ok_or(RouteFault::Unknown)?;
    let (kind, task, config) = operation(method, generation, resource)?;
    Ok(Route { generation, kind, tenant, task, config })
}

fn split(segments: &[&str]) -> Option<(Generation, Option<String>, Resource)> {
    if let ["v1", rest @ ..] = segments {
        return Some((Generation::V03, None, resource(rest, Generation::V03)?));
    }
    if let Some(resource) = resource(segments, Generation::V10) {
        return Some((Generation::V10, None, resource));
    }
    // A tenant shadows no path without one.
    let [tenant, rest @ ..] = segments else { return None };
    Some((Generation::V10, Some(id(tenant)?), resource(rest, Generation::V10)?))
}

fn resource(segments: &[&str], generation: Generation) -> Option<Resource> {
    let card = match generation {
        Generation::V03 => "card",
        Generation::V10 => "extendedAgentCard",
    };
    Some(match segments {
        ["message:send"] => Resource::Send,
        ["message:stream"] => Resource::Stream,
        ["tasks"] => Resource::Tasks,
        ["tasks", task] => match task.rsplit_once(':') {
            Some((task, "cancel")) => Resource::Cancel(id(task)?),
            Some((task, "subscribe")) => Resource::Subscribe(id(task)?),
            _ => Resource::Task(id(task)?),
        },
        ["tasks", task, "pushNotificationConfigs"] => Resource::Configs(id(task)?),
        ["tasks", task, "pushNotificationConfigs", config] => Resource::Config(id(task)?, id(config)?),
        [name] if *name == card => Resource::Card,
        _ => return None,
    })
}

/// Decodes one segment; `None` unless it is an id.
fn id(segment: &str) -> Option<String> {
    let id = percent_decode_str(segment).decode_utf8().ok()?;
    is_id(&id).then(|| id.into_owned())
}

/// Whether a path can have the id as one segment, percent-encoded. Slashes and dot segments mean something else to some that a
/// request passes, however they are encoded (RFC 3986 section 3.3).
pub fn is_id(id: &str) -> bool {
    let has_length = (1..=MAX_ID).contains(&id.len());
    has_length && !matches!(id, "." | "..") && !id.chars().any(|c| matches!(c, '/' | '\\') || c.is_control())
}

type RouteTarget = (OperationKind, Option<String>, Option<String>);

fn operation(method: &str, generation: Generation, resource: Resource) -> Result<RouteTarget, RouteFault> {
    let only = |allowed: &'static str, kind: OperationKind, task: Option<String>, config: Option<String>| {
        // HEAD is answered as GET without its body.
        let is_allowed = method == allowed || (method == "HEAD" && allowed == "GET");
        if is_allowed { Ok((kind, task, config)) } else { Err(RouteFault::Method { allowed }) }
    };
    match resource {
        Resource::Send => only("POST", OperationKind::Send, None, None),
        Resource::Stream => only("POST", OperationKind::Stream, None, None),
        Resource::Tasks if generation == Generation::V03 => Err(RouteFault::Unknown),
        Resource::Tasks => only("GET", OperationKind::ListTasks, None, None),
        Resource::Task(task) => only("GET", OperationKind::GetTask, Some(task), None),
        Resource::Cancel(task) => only("POST", OperationKind::CancelTask, Some(task), None),
        // The specification's text says POST, its protocol buffers say GET; clients do either.
        Resource::Subscribe(task) if matches!(method, "GET" | "POST") => {
            Ok((OperationKind::Subscribe, Some(task), None))
        }
        Resource::Subscribe(_) => Err(RouteFault::Method { allowed: "GET, POST" }),
        Resource::Configs(task) => match method {
            "POST" => Ok((OperationKind::CreatePush, Some(task), None)),
            "GET" => Ok((OperationKind::ListPush, Some(task), None)),
            _ => Err(RouteFault::Method { allowed: "GET, POST" }),
        },
        Resource::Config(task, config) => match method {
            "GET" => Ok((OperationKind::GetPush, Some(task), Some(config))),
            "DELETE" => Ok((OperationKind::DeletePush, Some(task), Some(config))),
            _ => Err(RouteFault::Method { allowed: "GET, DELETE" }),
        },
        Resource::Card => only("GET", OperationKind::ExtendedCard, None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, path: &str) -> (Generation, OperationKind, String) {
        let route = route(method, path).unwrap_or_else(|fault| panic!("{method} {path}: {fault}"));
        let ids = [route.tenant, route.task, route.config].map(Option::unwrap_or_default).join("|");
        (route.generation, route.kind, ids)
    }

    #[test]
    fn each_operation_has_its_route_in_both_versions() {
        use OperationKind::{
            CancelTask, CreatePush, DeletePush, ExtendedCard, GetPush, GetTask, ListPush, ListTasks, Send,
            Stream, Subscribe,
        };
        for (method, path, kind, ids) in [
            ("POST", "/message:send", Send, "||"),
            ("POST", "/message:stream", Stream, "||"),
            ("GET", "/tasks/7", GetTask, "|7|"),
            ("POST", "/tasks/7:cancel", CancelTask, "|7|"),
            ("GET", "/tasks/7:subscribe", Subscribe, "|7|"),
            ("POST", "/tasks/7:subscribe", Subscribe, "|7|"),
            ("POST", "/tasks/7/pushNotificationConfigs", CreatePush, "|7|"),
            ("GET", "/tasks/7/pushNotificationConfigs", ListPush, "|7|"),
            ("GET", "/tasks/7/pushNotificationConfigs/", ListPush, "|7|"),
            ("GET", "/tasks/7/pushNotificationConfigs/c", GetPush, "|7|c"),
            ("DELETE", "/tasks/7/pushNotificationConfigs/c", DeletePush, "|7|c"),
        ] {
            assert_eq!(found(method, path), (Generation::V10, kind, ids.into()), "{method} {path}");
            assert_eq!(
                found(method, &format!("/v1{path}")),
                (Generation::V03, kind, ids.into()),
                "/v1{path}"
            );
            assert_eq!(
                found(method, &format!("/t{path}")),
                (Generation::V10, kind, format!("t{ids}")),
                "/t{path}"
            );
        }
        assert_eq!(found("GET", "/tasks"), (Generation::V10, ListTasks, "||".into()));
        assert_eq!(found("GET", "/extendedAgentCard"), (Generation::V10, ExtendedCard, "||".into()));
        assert_eq!(found("GET", "/v1/card"), (Generation::V03, ExtendedCard, "||".into()));
        assert_eq!(route("GET", "/v1/tasks"), Err(RouteFault::Unknown));
    }

    #[test]
    fn an_id_is_one_segment_decoded_once() {
        for (path, id) in [
            ("/tasks/a%20b", "a b"),
            ("/tasks/a%3Asubscribe", "a:subscribe"),
            ("/tasks/%2541", "%41"),
            ("/tasks/a:b", "a:b"),
            ("/tasks/%C3%A4", "ä"),
            ("/tasks/tasks", "tasks"),
        ] {
            assert_eq!(
                found("GET", path),
                (Generation::V10, OperationKind::GetTask, format!("|{id}|")),
                "{path}"
            );
        }
        let long = format!("/tasks/{}", "x".repeat(MAX_ID + 1));
        for path in [
            "",
            "/",
            "tasks",
            "/tasks/a%2Fb",
            "/tasks/a%5Cb",
            "/tasks/%2E%2e",
            "/tasks/%0a",
            "/tasks/%ff",
            "/tasks//",
            "/tasks/:cancel",
            "/tasks/a/b",
            "/v1",
            "/v1/extendedAgentCard",
            "/card",
            "/a/b/tasks",
            "/message",
            "/message:send/x",
            "/%2F/tasks",
            &long,
        ] {
            assert_eq!(route("GET", path), Err(RouteFault::Unknown), "{path}");
        }
    }

    #[test]
    fn another_method_is_refused_with_those_that_fit() {
        for (method, path, allowed) in [
            ("GET", "/message:send", "POST"),
            ("POST", "/tasks/7", "GET"),
            ("DELETE", "/tasks/7:subscribe", "GET, POST"),
            ("GET", "/tasks/7:cancel", "POST"),
            ("PUT", "/tasks/7/pushNotificationConfigs/c", "GET, DELETE"),
            ("PATCH", "/tasks/7/pushNotificationConfigs", "GET, POST"),
        ] {
            assert_eq!(route(method, path), Err(RouteFault::Method { allowed }), "{method} {path}");
        }
    }
}
