// An identity provider on loopback, on another site than the console; prints its issuer. Whoever signs in is who they say, as in the
// provider's own development pages, and is in the group of the same name.
import http from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const found = createRequire(`${process.argv[2]}/x.js`).resolve("oidc-provider");
const { Provider } = await import(pathToFileURL(found));
const server = http.createServer();
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const issuer = `http://localhost:${server.address().port}`;
const said = (account) => ({ preferred_username: account, groups: [`${account}s`, "everybody"] });

const provider = new Provider(issuer, {
  clients: [{
    client_id: "console",
    client_secret: "a secret: with %",
    redirect_uris: ["http://127.0.0.1/any"],
    grant_types: ["authorization_code", "refresh_token"],
  }],
  pkce: { required: () => true },
  findAccount: (_context, id) => locked.has(id) ? undefined : ({ accountId: id, claims: () => ({ sub: `no-name-${id}` }) }),
  extraTokenClaims: (_context, token) => said(token.accountId),
  issueRefreshToken: async () => true,
  features: {
    devInteractions: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: () => ({
        scope: "",
        audience: "packhorse",
        accessTokenFormat: "jwt",
        accessTokenTTL: 2,
      }),
      useGrantedResource: () => true,
    },
  },
  cookies: { keys: ["for the tests"] },
});
// The console has another port in each test.
provider.Client.prototype.redirectUriAllowed = (uri) =>
  new URL(uri).pathname === "/pages/sign-in/provider/done";
provider.Client.prototype.postLogoutRedirectUriAllowed = (uri) => new URL(uri).pathname === "/pages/sign-in";
// What lets tokens be renewed ends when it is asked to: an administrator has locked the account.
const locked = new Set();
const answers = provider.callback();
server.on("request", (request, answer) => {
  const [, account] = request.url.match(/^\/lock\/(\w+)$/) ?? [];
  if (account === undefined) return answers(request, answer);
  locked.add(account);
  return answer.end();
});
process.stdin.on("end", () => process.exit()).resume(); // ends with whoever has started it
console.log(issuer);
