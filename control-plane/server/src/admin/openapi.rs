//! The OpenAPI 3.1 document, generated from the handlers.

use axum::Json;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

use super::{explain, policy, problem, ratelimits, registry, revocations, status};

#[derive(OpenApi)]
#[openapi(
    info(title = "Agentic Server Platform admin API", version = "1.0.0"),
    paths(
        registry::validate,
        registry::compile,
        registry::list_servers,
        registry::put_server,
        registry::get_server,
        registry::delete_server,
        registry::org_primitives,
        explain::explain,
        policy::put_exposure,
        policy::get_exposure,
        policy::delete_exposure,
        policy::put_binding,
        policy::get_bindings,
        policy::delete_bindings,
        ratelimits::put,
        ratelimits::get,
        ratelimits::delete,
        revocations::add,
        revocations::list,
        revocations::get,
        revocations::delete,
        status::snapshot,
        status::audit,
        status::schemas,
        status::jwks,
    ),
    components(schemas(problem::Problem, problem::Code)),
    modifiers(&BearerToken),
    security(("bearer" = []))
)]
pub struct Document;

struct BearerToken;

impl utoipa::Modify for BearerToken {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").build();
        openapi
            .components
            .get_or_insert_with(Default::default)
            .add_security_scheme("bearer", SecurityScheme::Http(scheme));
    }
}

/// Serves the document. Public.
pub async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}
