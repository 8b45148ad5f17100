# A Nix flake: nix run "git+file:///path/to/the/clone?dir=packaging/nix" -- run smollm2
# Parsed by nix-instantiate and never built: nixpkgs cannot be reached from where it was written.
{
  description = "LLM inference with the same bits under any load";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "aarch64-darwin" "x86_64-darwin" ];
      forEach = nixpkgs.lib.genAttrs systems;
    in
    {
      packages = forEach (system:
        let
          python = nixpkgs.legacyPackages.${system}.python313Packages;
        in
        {
          default = python.buildPythonApplication {
            pname = "samebits";
            version = "0.1.0";
            pyproject = true;
            src = ../..;
            env = {
              SAMEBITS_REQUIRE_NATIVE = "1";
              SETUPTOOLS_SCM_PRETEND_VERSION_FOR_SAMEBITS = "0.1.0";
            };
            build-system = with python; [ scikit-build-core nanobind setuptools-scm ];
            nativeBuildInputs = with nixpkgs.legacyPackages.${system}; [ cmake ninja ];
            dontUseCmakeConfigure = true;
            dependencies = with python; [
              numpy
              ml-dtypes
              click
              rich
              prompt-toolkit
              tokenizers
              safetensors
              jinja2
              starlette
              uvicorn
              h11
              pydantic
              llguidance
              prometheus-client
            ];
            pythonImportsCheck = [ "samebits" ];
          };
        });
    };
}
