/** An address: `#/{view}/{path…}?{query}` */
export interface Route {
  view: string;
  path: string[];
  query: URLSearchParams;
}

export interface View {
  /** Called each time the address becomes one of this view. */
  show: (route: Route) => void;
  /** Called when another view is shown. */
  hide?: () => void;
  /** Called when the server has said who the user is, and which models there are. */
  identified?: () => void;
  /** Called when the user gave a new key after the server refused the old one. */
  signedIn?: () => void;
}
