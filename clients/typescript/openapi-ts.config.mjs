import { readdirSync } from "node:fs";
import { defaultPlugins } from "@hey-api/openapi-ts";

export default readdirSync("documents").map((file) => ({
  input: `./documents/${file}`,
  output: { path: `src/${file.replace(".yaml", "")}`, module: { extension: ".js" } },
  plugins: [
    ...defaultPlugins,
    { name: "@hey-api/client-fetch", runtimeConfigPath: "./src/names.js" },
  ],
  logs: { level: "warn" },
}));
