# A Homebrew formula: brew install --HEAD --formula packaging/homebrew/samebits.rb
# Parsed by ruby and never installed: no Mac was at hand. Dependencies come from PyPI into an environment of its own.
class Samebits < Formula
  desc "LLM inference with the same bits under any load"
  license "Apache-2.0"
  head "file://#{File.expand_path("../..", __dir__)}", using: :git, branch: "main"

  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "python@3.13"

  def install
    ENV["SAMEBITS_REQUIRE_NATIVE"] = "1"
    system Formula["python@3.13"].opt_bin/"python3.13", "-m", "venv", libexec
    system libexec/"bin/pip", "install", "#{buildpath}[server]"
    bin.install_symlink libexec/"bin/samebits"
    man1.install "docs/samebits.1"
  end

  test do
    assert_match "0 fail", shell_output("#{bin}/samebits verify --backend cpu --tier portable --op gemm_q8")
  end
end
