//! Makes `fetch` go through the egress proxy where the environment names one. Node from 22.21 does it by itself
//! with --use-env-proxy, `http` and `https` included; for an older one undici's dispatcher is put in place.

/** Sets the proxy up; does nothing for a plugin without allowed domains. */
export async function routeThroughProxy() {
  const { HTTP_PROXY, HTTPS_PROXY, http_proxy, https_proxy } = process.env;
  if (!(HTTP_PROXY || HTTPS_PROXY || http_proxy || https_proxy)) return;
  if (process.execArgv.includes('--use-env-proxy')) return;
  const { EnvHttpProxyAgent, setGlobalDispatcher } = await import('undici');
  setGlobalDispatcher(new EnvHttpProxyAgent());
}
