// WGSL texts, a JSON list on stdin, to what naga makes of each: a JSON list of {error} or {msl, hlsl, spirv} on stdout.
import { readFileSync } from "node:fs";
import { parseWgsl, validate, writeHlsl, writeMsl, writeSpirv } from "naga-wasm";

function translated(source) {
    try {
        const module = parseWgsl(source);
        const info = validate(module);
        const words = writeSpirv(module, info, { flags: { debug: true } });
        return {
            msl: writeMsl(module, info, { langVersion: [2, 4] }),
            hlsl: writeHlsl(module, info, { shaderModel: "6_0" }),
            spirv: Buffer.from(words.buffer, words.byteOffset, words.byteLength).toString("base64"),
        };
    } catch (error) {
        return { error: String(error.formatted ?? error) };
    }
}

process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(translated)));
