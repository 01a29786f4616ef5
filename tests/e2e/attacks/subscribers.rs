//! A local process that speaks to the control plane as a gateway does, where nobody has certificates: Envoy sends clients'
//! requests to no address off this machine.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use asp_e2e::port::Reserved;
use tonic::transport::Endpoint;
use tonic::{Code, Status};

use crate::peers::subscribe;
use crate::trial::{Shared, trials};

trials! { attacks: a_process_without_a_certificate_leads_no_requests_off_this_machine }

async fn a_process_without_a_certificate_leads_no_requests_off_this_machine(shared: &Shared) -> Result<()> {
    let world = shared.attacked().await?;
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", world.stack.ports.xds))?;
    for away in ["203.0.113.9:80", "10.1.2.3:4711", "0.0.0.0:4711"] {
        let address: SocketAddr = away.parse()?;
        let heard = subscribe(endpoint.connect().await?, address, Some("1-00000000")).await;
        let fault = heard.err().with_context(|| format!("{away} was sent a snapshot"))?;
        let code = fault.downcast_ref::<Status>().map(Status::code);
        ensure!(code == Some(Code::PermissionDenied), "{away}: {fault:#}");
    }
    world.stack.asp.logged("may advertise loopback addresses only").await?;

    // A gateway of this machine is let in. It never says that it has the snapshot, so no request is sent to it.
    let here = Reserved::new()?.address();
    let bytes =
        subscribe(endpoint.connect().await?, here, None).await.context("a gateway of this machine")?;
    ensure!(bytes > 0, "it is sent the snapshot");
    let clusters = world.stack.envoy.admin("/clusters").await?;
    ensure!(clusters.contains(&world.stack.gateway().to_string()), "Envoy has its own gateway:\n{clusters}");
    for away in ["203.0.113.9", "10.1.2.3", "0.0.0.0:4711"] {
        ensure!(!clusters.contains(away), "{away} is in Envoy's clusters:\n{clusters}");
    }
    Ok(())
}
