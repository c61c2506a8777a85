// Before anything is drawn: light or dark as chosen here, else as the system has it.
(() => {
  const KEY = "spinney-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => localStorage.getItem(KEY) || (system.matches ? "dark" : "light");
  const apply = () => {
    document.documentElement.dataset.theme = chosen();
    document.dispatchEvent(new Event("theme"));
  };
  globalThis.switchTheme = () => {
    localStorage.setItem(KEY, chosen() === "dark" ? "light" : "dark");
    apply();
  };
  system.addEventListener("change", apply);
  apply();
})();
