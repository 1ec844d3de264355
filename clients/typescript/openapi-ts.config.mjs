import { readdirSync } from "node:fs";

export default readdirSync("documents").map((file) => ({
  input: `./documents/${file}`,
  output: { path: `src/${file.replace(".yaml", "")}`, module: { extension: ".js" } },
  logs: { level: "warn" },
}));
